"""Many tasks at once: query by filter, cancel by filter or by uuid."""

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.services.audit import record
from accounts.views import UserView
from core.errors import InvalidInput
from mitosis_protocol.enums import Role, TaskState
from mitosis_protocol.limits import MAX_LIST_ITEMS
from tasks.api.info import task_infos
from tasks.selectors import list_places
from tasks.selectors_query import count_tasks, list_active, list_tasks
from tasks.serializers import TaskInfo, UuidListField
from tasks.serializers_filter import TaskFilterBody, TasksQueryBody, read_filter
from tasks.services.cancel import Cancelled, cancel_matching, cancel_tasks
from tasks.services.stop_hints import tell_to_stop

# Waiting, or in the hands of a runner; what has ended its command is left to its report.
CANCELLABLE: Final = frozenset({TaskState.PENDING, TaskState.READY, TaskState.RUNNING})


class TasksQueryAnswer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Of all matches if asked for, else of this answer.")
    tasks = TaskInfo(many=True, help_text="Oldest first.")
    group_name = serializers.CharField()
    has_more = serializers.BooleanField(help_text="Whether there are tasks behind this page.")


class TasksCancelAnswer(serializers.Serializer[Any]):
    cancelled_count = serializers.IntegerField()
    cancelling_count = serializers.IntegerField(
        help_text="How many of them still run and were told to stop."
    )
    group_name = serializers.CharField()


class UuidsBody(serializers.Serializer[Any]):
    uuids = UuidListField()


class TasksCancelListAnswer(serializers.Serializer[Any]):
    cancelled_count = serializers.IntegerField()
    cancelling_count = serializers.IntegerField()
    failed_uuids = serializers.ListField(child=serializers.UUIDField())


class QueryView(UserView):
    @describe(
        summary="The tasks of a group that match a filter",
        request=TasksQueryBody,
        answer=TasksQueryAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, TasksQueryBody)
        asked = read_filter(body, caller=current_user(request), role=Role.READ)
        name = asked.group.name
        if body["count"]:
            count = count_tasks(asked.wanted)
            return Response({"count": count, "tasks": [], "group_name": name, "has_more": False})
        limit = page_limit(body)
        tasks = list_tasks(asked.wanted, offset=body.get("offset") or 0, limit=limit + 1)
        infos = task_infos(tasks[:limit])
        return Response(
            {
                "count": len(infos),
                "tasks": infos,
                "group_name": name,
                "has_more": len(tasks) > limit,
            }
        )


class CancelView(UserView):
    @describe(
        summary="Cancel the tasks of a group that match a filter",
        request=TaskFilterBody,
        answer=TasksCancelAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, TaskFilterBody)
        asked = read_filter(body, caller=current_user(request), role=Role.WRITE)
        states = (
            CANCELLABLE if asked.wanted.states is None else CANCELLABLE & {*asked.wanted.states}
        )
        # Nothing in common with what can be cancelled means nothing, not everything.
        tasks = list_active(replace(asked.wanted, states=states))
        batch = settings.MITOSIS.sweep_batch
        done = cancel_matching(tasks, stop_running=True, batch=batch)
        _conclude(request, done, target=asked.group.name)
        return Response({**_counts(done), "group_name": asked.group.name})


class CancelListView(UserView):
    @describe(summary="Cancel tasks by uuid", request=UuidsBody, answer=TasksCancelListAnswer)
    def post(self, request: Request) -> Response:
        uuids = uuids_of(read_body(request, UuidsBody))
        places = list_places(current_user(request), uuids, Role.WRITE, only_active=True)
        ids = {place.id: uuid for uuid, place in places.items()}
        done = cancel_tasks(ids, stop_running=True, batch=settings.MITOSIS.sweep_batch)
        decided = {ids[task_id] for task_id in (*done.ended_ids, *done.stopping_ids)}
        _conclude(request, done)
        failed = [str(uuid) for uuid in uuids if uuid not in decided]
        return Response({**_counts(done), "failed_uuids": failed})


def uuids_of(body: dict[str, Any]) -> list[UUID]:
    """The uuids of a list call, each once; raises InvalidInput for none."""
    if not body["uuids"]:
        raise InvalidInput("uuids: the list is empty")
    return list(dict.fromkeys(body["uuids"]))


def page_limit(body: dict[str, Any]) -> int:
    """Without a limit existing clients expect everything; a page has to end somewhere."""
    limit = body.get("limit")
    return MAX_LIST_ITEMS if limit is None else min(limit, MAX_LIST_ITEMS)


def _counts(done: Cancelled) -> dict[str, object]:
    return {"cancelled_count": done.count, "cancelling_count": len(done.stopping_ids)}


def _conclude(request: Request, done: Cancelled, *, target: str = "") -> None:
    tell_to_stop(done)
    actor = current_actor(request)
    detail = {"ended": len(done.ended_ids), "stopping": len(done.stopping_ids)}
    record(actor=actor, action="task.cancel_many", target=target, detail=detail)
