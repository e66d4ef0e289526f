"""The life of a suite by hand: cancel, close, reopen, pause, resume, scale, rerun."""

import uuid

from django.conf import settings
from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.struct_schema import openapi_schema
from accounts.views import UserView
from managers.services.engagement import forgive_preparations
from mitosis_protocol.enums import Role, SuiteState
from mitosis_protocol.suites import SuiteScale
from suites.api.bodies import (
    CancelAnswer,
    CancelBody,
    RerunAnswer,
    RerunBody,
    StateAnswer,
    SuiteAnswer,
)
from suites.api.info import state_answer, suite_answer
from suites.models import TaskSuite
from suites.selectors import access_suite
from suites.services.create import scale_suite
from suites.services.lifecycle import close_suite, reopen_suite
from suites.services.pausing import pause_suite, resume_suite
from suites.spec_input import parse_spec
from tasks.services.suite_cancel import cancel_suite
from tasks.services.suite_hints import (
    tell_cancelled,
    tell_closed,
    tell_of_work,
    tell_paused,
    tell_resumed,
)
from tasks.services.suite_rerun import rerun_tasks


class CancelView(UserView):
    @describe(
        summary="Cancel a suite and its tasks, for good",
        request=CancelBody,
        answer=CancelAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        body = read_body(request, CancelBody)
        done = cancel_suite(
            actor=current_actor(request),
            suite=suite,
            reason=body["reason"],
            stop_running=body["cancel_running_tasks"],
            batch=settings.MITOSIS.sweep_batch,
        )
        tell_cancelled(suite, reason=body["reason"], stop_running=body["cancel_running_tasks"])
        answer = {
            "cancelled_task_count": done.count,
            "cancelling_task_count": len(done.stopping_ids),
            "suite_state": SuiteState.CANCELLED.value,
        }
        return Response(answer)


class CloseView(UserView):
    @describe(
        summary="No more tasks are expected: the suite completes when the last one ends",
        answer=StateAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        changed = close_suite(actor=current_actor(request), suite=suite)
        tell_closed(suite)
        return Response(state_answer(suite, changed=changed))


class ReopenView(UserView):
    @describe(
        summary="Take tasks again; a submit does the same",
        answer=StateAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        changed = reopen_suite(actor=current_actor(request), suite=suite)
        return Response(state_answer(suite, changed=changed))


class PauseView(UserView):
    @describe(
        summary="Hand out nothing more; what runs goes on", answer=StateAnswer, problems=(404, 409)
    )
    def post(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        changed = pause_suite(actor=current_actor(request), suite=suite)
        tell_paused(suite)
        return Response(state_answer(suite, changed=changed))


class ResumeView(UserView):
    @describe(
        summary="End a pause or a block; failures so far are forgiven",
        answer=StateAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        was_stopped = suite.paused_at is not None or suite.blocked_at is not None
        with transaction.atomic():
            resume_suite(actor=current_actor(request), suite=suite)
            forgive_preparations(suite)
        tell_resumed(suite)
        return Response(state_answer(suite, changed=was_stopped))


class ScaleView(UserView):
    @describe(
        summary="Change the worker plan or the cap on running tasks",
        request={"application/json": openapi_schema(SuiteScale)},
        answer=SuiteAnswer,
        problems=(404, 409),
    )
    def put(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        scale = parse_spec(request.data, SuiteScale)
        return Response(
            suite_answer(scale_suite(actor=current_actor(request), suite=suite, scale=scale))
        )


class RerunView(UserView):
    @describe(
        summary="Run ended tasks again, as new tasks that carry `rerun_of`",
        request=RerunBody,
        answer=RerunAnswer,
        status=201,
        problems=(404, 409),
    )
    def post(self, request: Request, suite_uuid: uuid.UUID) -> Response:
        suite = _writable(request, suite_uuid)
        body = read_body(request, RerunBody)
        made = rerun_tasks(
            actor=current_actor(request),
            user=current_user(request),
            suite=suite,
            outcomes=body["outcomes"],
            task_uuids=body.get("task_uuids"),
        )
        suite.refresh_from_db(fields=["state"])
        if made.tasks:
            tell_of_work(suite)
        answer = {
            "count": len(made.tasks),
            "tasks": [
                {"uuid": str(one.uuid), "task_id": one.number, "rerun_of": str(one.rerun_of)}
                for one in made.tasks
            ],
            "has_more": made.has_more,
            "suite_state": suite.state.value,
        }
        return Response(answer, status=201)


def _writable(request: Request, suite_uuid: uuid.UUID) -> TaskSuite:
    return access_suite(current_user(request), suite_uuid, Role.WRITE).suite
