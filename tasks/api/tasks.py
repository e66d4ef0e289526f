"""One task by uuid: read, change, relabel, cancel."""

from typing import Any
from uuid import UUID

import msgspec
from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import TagsField, read_body
from accounts.ceilings import check_priority
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.services.audit import record
from accounts.struct_schema import openapi_schema
from accounts.views import UserView
from core.errors import Conflict, InvalidInput
from mitosis_protocol.enums import Role
from mitosis_protocol.limits import MAX_LABELS
from tasks.api.info import artifact_infos, task_infos
from tasks.api.struct_bodies import read_struct
from tasks.models import ArchivedTask
from tasks.selectors import Task, absent, access_task
from tasks.selectors_uploads import list_artifacts
from tasks.serializers import TaskAnswer
from tasks.serializers_submit import ChangeTask
from tasks.services.cancel import cancel_tasks
from tasks.services.change import change_task, relabel_task
from tasks.services.stop_hints import tell_to_stop


class LabelsBody(serializers.Serializer[Any]):
    labels = TagsField(max_items=MAX_LABELS)


class TaskView(UserView):
    @describe(summary="A task and its archives", answer=TaskAnswer, problems=(404,))
    def get(self, request: Request, task_uuid: UUID) -> Response:
        task = access_task(current_user(request), task_uuid, Role.READ)
        [info] = task_infos([task])
        # Beside the existing members: what its runner said about it, a node's outputs among it.
        report = task.result if isinstance(task, ArchivedTask) else None
        artifacts = artifact_infos(list_artifacts(task))
        return Response({"info": info, "artifacts": artifacts, "report": report})

    @describe(
        summary="Change a task that waits; it keeps its place among equals",
        request={"application/json": openapi_schema(ChangeTask)},
        problems=(404,),
    )
    def put(self, request: Request, task_uuid: UUID) -> Response:
        task = access_task(current_user(request), task_uuid, Role.WRITE)
        body = read_struct(request, ChangeTask)
        check_priority(task.group, body.priority)
        _refuse_node_changes(task, body)
        change_task(
            task.uuid,
            tags=body.tags,
            timeout_s=body.timeout_s,
            priority=body.priority,
            spec=body.task_spec,
        )
        record(actor=current_actor(request), action="task.change", target=str(task.uuid))
        return Response()

    @describe(
        summary="Cancel a task; one that runs is told to stop",
        problems=(404, 409),
    )
    def delete(self, request: Request, task_uuid: UUID) -> Response:
        task = access_task(current_user(request), task_uuid, Role.WRITE)
        if isinstance(task, ArchivedTask):
            raise absent(task_uuid)
        done = cancel_tasks([task.pk], stop_running=True, batch=settings.MITOSIS.sweep_batch)
        if done.gone_ids:
            raise absent(task_uuid)
        if not done.count:
            raise Conflict("The task is being changed at this moment; try again")
        record(actor=current_actor(request), action="task.cancel", target=str(task.uuid))
        tell_to_stop(done)
        return Response()


def _refuse_node_changes(task: Task, body: ChangeTask) -> None:
    """Its tags say which workers have the handler that its spec calls: they go together."""
    is_node = "node" in task.spec
    changes_kind = body.task_spec is not None and body.task_spec.node is not msgspec.UNSET
    if changes_kind or (is_node and (body.tags is not None or body.task_spec is not None)):
        raise InvalidInput("task_spec: a node call keeps its tags and spec; submit another task")


class LabelsView(UserView):
    @describe(
        summary="Replace a task's labels, whatever its state", request=LabelsBody, problems=(404,)
    )
    def put(self, request: Request, task_uuid: UUID) -> Response:
        task = access_task(current_user(request), task_uuid, Role.WRITE)
        labels = read_body(request, LabelsBody)["labels"]
        relabel_task(task.uuid, labels)
        return Response()
