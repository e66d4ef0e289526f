"""Making, listing, showing, changing and removing suites."""

import uuid
from typing import Any

from django.conf import settings
from django.db import transaction
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import read_body
from accounts.guards import current_actor, current_user
from accounts.models import Group, User
from accounts.schema import describe
from accounts.selectors import access_group
from accounts.struct_schema import openapi_schema
from accounts.views import UserView
from core.errors import NotFound
from managers.services.config import require_suites_enabled
from managers.services.eligibility import match_suites
from mitosis_protocol.enums import Role
from mitosis_protocol.suites import SuiteChange, SuiteSpec
from suites.api.bodies import CreatedAnswer, SuiteAnswer, SuiteListAnswer, SuiteQueryBody
from suites.api.filters import PARAMETERS, Asked, asked_in_body, asked_in_query
from suites.api.info import assigned_managers, suite_answer, suite_infos, texts
from suites.selectors import access_suite, list_suites
from suites.services.create import change_suite, create_suite, delete_suite
from suites.spec_input import parse_spec


class SuitesView(UserView):
    @describe(
        summary="Make a suite; managers that match it may be given it from then on",
        request={"application/json": openapi_schema(SuiteSpec)},
        answer=CreatedAnswer,
        status=201,
        problems=(404, 409, 413),
    )
    def post(self, request: Request) -> Response:
        spec = parse_spec(request.data, SuiteSpec)
        user = current_user(request)
        group = _group(user, spec.group_name)
        require_suites_enabled()
        with transaction.atomic():
            suite = create_suite(
                actor=current_actor(request),
                creator=user,
                group=group,
                spec=spec,
                defaults=settings.MITOSIS,
            )
            match_suites([suite.pk])
        answer = {
            "uuid": str(suite.uuid),
            "state": suite.state.value,
            "assigned_managers": texts(assigned_managers(suite.pk)),
        }
        return Response(answer, status=201)

    @extend_schema(operation_id="suites_list")
    @describe(
        summary="Suites of the caller's groups", answer=SuiteListAnswer, parameters=PARAMETERS
    )
    def get(self, request: Request) -> Response:
        return _page(request, asked_in_query(request))


class SuitesQueryView(UserView):
    @describe(
        summary="Suites of the caller's groups that match a filter",
        request=SuiteQueryBody,
        answer=SuiteListAnswer,
    )
    def post(self, request: Request) -> Response:
        return _page(request, asked_in_body(read_body(request, SuiteQueryBody)))


class SuiteView(UserView):
    @describe(summary="One suite", answer=SuiteAnswer, problems=(404,))
    def get(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = access_suite(current_user(request), suite_uuid, Role.READ).suite
        return Response(suite_answer(suite))

    @describe(
        summary="Rename, describe, relabel or reprioritise a suite; its tags stay",
        request={"application/json": openapi_schema(SuiteChange)},
        answer=SuiteAnswer,
        problems=(404,),
    )
    def patch(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = access_suite(current_user(request), suite_uuid, Role.WRITE).suite
        change = parse_spec(request.data, SuiteChange)
        return Response(
            suite_answer(change_suite(actor=current_actor(request), suite=suite, change=change))
        )

    @describe(summary="Remove a suite that never had a task", status=204, problems=(404, 409))
    def delete(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = access_suite(current_user(request), suite_uuid, Role.WRITE).suite
        delete_suite(actor=current_actor(request), suite=suite)
        return Response(status=204)


def _group(user: User, name: str) -> Group:
    """A group the caller may make suites in; a foreign one is absent."""
    try:
        return access_group(user, name, Role.WRITE).group
    except NotFound as error:
        raise NotFound(f"group_name: {error.message}") from error


def _page(request: Request, asked: Asked) -> Response:
    rows = list_suites(current_user(request), asked.wanted)
    answer: dict[str, Any] = {
        "count": rows.count(),
        "suites": suite_infos(rows[asked.offset : asked.offset + asked.limit]),
        "limit": asked.limit,
        "offset": asked.offset,
    }
    return Response(answer)
