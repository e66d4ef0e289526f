"""Which managers may be given a suite: match them now, choose some, take some off."""

import uuid
from http import HTTPStatus

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.views import UserView
from core.errors import InvalidInput
from core.problem import problem
from managers.models import SuiteManager
from managers.services.eligibility import add_managers, refresh_suite, remove_managers
from mitosis_protocol.enums import Role, SelectionType
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_LIST_ITEMS
from suites.api.bodies import AddedAnswer, ManagersBody, RefreshAnswer, RemovedAnswer
from suites.api.info import assigned_managers, texts
from suites.models import TaskSuite
from suites.selectors import access_suite

UUIDS = OpenApiParameter(
    "manager_uuids",
    OpenApiTypes.STR,
    description="With commas, or repeated; for clients whose DELETE has no body.",
)


class RefreshView(UserView):
    @describe(
        summary="Match managers to the suite now",
        answer=RefreshAnswer,
        problems=(404,),
    )
    def post(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        matched = refresh_suite(
            actor=current_actor(request), user=current_user(request), suite=suite
        )
        added = {manager_uuid for _, manager_uuid in matched.added}
        return Response(
            {
                "added_managers": _matched(suite, added),
                "removed_managers": texts([one for _, one in matched.removed]),
                "total_assigned": len(assigned_managers(suite.pk)),
            }
        )


class ManagersView(UserView):
    @describe(
        summary="Choose managers for the suite by hand, whatever their tags; all or none",
        request=ManagersBody,
        answer=AddedAnswer,
        problems=(404,),
    )
    def post(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        uuids = read_body(request, ManagersBody)["manager_uuids"]
        done = add_managers(
            actor=current_actor(request),
            user=current_user(request),
            suite=suite,
            manager_uuids=uuids,
        )
        answer: dict[str, object] = {
            "added_managers": texts(done.added),
            "rejected_managers": texts(done.rejected),
            "reason": done.reason,
        }
        if done.reason is None:
            return Response(answer)
        refusal = problem(HTTPStatus.FORBIDDEN, ErrorCode.AUTH_PERMISSION_DENIED, done.reason)
        return Response({**refusal, **answer}, status=HTTPStatus.FORBIDDEN)

    @describe(
        summary="Take managers off the suite; matching does not put them back, a refresh does",
        request=ManagersBody,
        answer=RemovedAnswer,
        problems=(404,),
        parameters=[UUIDS],
    )
    def delete(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        removed = remove_managers(
            actor=current_actor(request), suite=suite, manager_uuids=_named(request)
        )
        return Response({"removed_count": removed})


def _writable(request: Request, suite_uuid: uuid.UUID) -> TaskSuite:
    return access_suite(current_user(request), suite_uuid, Role.WRITE).suite


def _named(request: Request) -> list[uuid.UUID]:
    """From the query if it is there, else from the body."""
    values = request.query_params.getlist("manager_uuids")
    if not values:
        named: list[uuid.UUID] = read_body(request, ManagersBody)["manager_uuids"]
        return named
    words = [word for value in values for word in value.split(",")]
    if len(words) > MAX_LIST_ITEMS:
        raise InvalidInput(f"manager_uuids: at most {MAX_LIST_ITEMS}")
    try:
        return [uuid.UUID(word) for word in words]
    except ValueError as error:
        raise InvalidInput("manager_uuids: not a list of uuids") from error


def _matched(suite: TaskSuite, manager_uuids: set[uuid.UUID]) -> list[dict[str, object]]:
    rows = SuiteManager.objects.filter(
        suite=suite, manager__runner__uuid__in=manager_uuids
    ).order_by("pk")
    found = rows.values_list("manager__runner__uuid", "matched_tags")
    return [
        {
            "manager_uuid": str(manager_uuid),
            "matched_tags": tags,
            "selection_type": SelectionType.TAG_MATCHED.value,
        }
        for manager_uuid, tags in found
    ]
