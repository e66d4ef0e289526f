"""Submitting tasks: one, a batch whose items stand alone, an array from a template."""

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from django.db import transaction
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import WrongShape
from accounts.ceilings import check_priority
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.services.audit import record
from accounts.struct_schema import openapi_schema
from accounts.views import UserView
from core.errors import DomainError, InvalidInput, LimitExceeded
from mitosis_protocol.limits import MAX_BULK_BODY_BYTES, MAX_BULK_TASKS
from suites.models import TaskSuite
from suites.services.lifecycle import accept_submits
from tasks.api.struct_bodies import convert, read_struct
from tasks.api.targets import Place, Targets
from tasks.models import Submission
from tasks.serializers_submit import SubmitArray, SubmitTask, array_row, refuse_row_numbers
from tasks.services.array import SubmittedArray, submit_array
from tasks.services.direct_hints import tell_of_tasks
from tasks.services.idempotency import MAX_KEY_CHARS, Idempotency
from tasks.services.submit import (
    BatchItem,
    ItemAnswer,
    Taken,
    Target,
    submit_batch,
    submit_task,
)
from tasks.services.suite_hints import tell_of_work

KEY_HEADER: Final = OpenApiParameter(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS},
    OpenApiParameter.HEADER,
    description="The same key and body again are answered as the first time.",
)
TASK_BODY: Final = {"application/json": openapi_schema(SubmitTask)}
BATCH_BODY: Final = {
    "application/json": {
        "type": "object",
        "required": ["tasks"],
        "properties": {
            "tasks": {
                "type": "array",
                "minItems": 1,
                "maxItems": MAX_BULK_TASKS,
                "items": openapi_schema(SubmitTask),
            }
        },
    }
}
ARRAY_BODY: Final = {"application/json": openapi_schema(SubmitArray)}


class SubmittedAnswer(serializers.Serializer[Any]):
    task_id = serializers.IntegerField(help_text="Counts from 1 within the group.")
    uuid = serializers.UUIDField()
    suite_uuid = serializers.UUIDField(allow_null=True)


class TakenAnswer(serializers.Serializer[Any]):
    task_id = serializers.IntegerField()
    uuid = serializers.UUIDField()


class RefusedAnswer(serializers.Serializer[Any]):
    msg = serializers.CharField()


class ItemResult(serializers.Serializer[Any]):
    """Either `Ok` or `Err`."""

    Ok = TakenAnswer(required=False)
    Err = RefusedAnswer(required=False)


class BatchAnswer(serializers.Serializer[Any]):
    results = ItemResult(many=True, help_text="In the order of the tasks.")


class ArrayAnswer(serializers.Serializer[Any]):
    first_task_id = serializers.IntegerField()
    last_task_id = serializers.IntegerField()
    count = serializers.IntegerField()
    uuids = serializers.ListField(child=serializers.UUIDField(), help_text="In row order.")
    suite_uuid = serializers.UUIDField(allow_null=True)


class TasksView(UserView):
    @describe(
        summary="Submit a task",
        request=TASK_BODY,
        answer=SubmittedAnswer,
        problems=(404, 409, 413),
        parameters=[KEY_HEADER],
    )
    def post(self, request: Request) -> Response:
        idempotency = _idempotency(request)
        body = read_struct(request, SubmitTask)
        refuse_row_numbers(body)
        user, targets = current_user(request), Targets(current_user(request))
        place = targets.place(body)
        task = targets.task(body, place)
        with transaction.atomic():
            _reopen(_suites([place]), idempotency)
            ref = submit_task(
                target=place.target, creator_id=user.pk, task=task, idempotency=idempotency
            )
            _tell_direct_workers([place.target])
            detail = {"group": place.group.name}
            record(
                actor=current_actor(request),
                action="task.submit",
                target=str(ref.uuid),
                detail=detail,
            )
        suite_uuid = None if place.suite is None else str(place.suite.uuid)
        return Response({"task_id": ref.number, "uuid": str(ref.uuid), "suite_uuid": suite_uuid})


class BatchView(UserView):
    max_body_bytes = MAX_BULK_BODY_BYTES

    @describe(
        summary="Submit many tasks; each is taken or refused by itself",
        request=BATCH_BODY,
        answer=BatchAnswer,
        problems=(409, 413),
        parameters=[KEY_HEADER],
    )
    def post(self, request: Request) -> Response:
        idempotency = _idempotency(request)
        given = _tasks_of(request.data)
        targets = Targets(current_user(request))
        items, places = [], []
        for index, value in enumerate(given):
            item, place = _batch_item(targets, value, index)
            items.append(item)
            if place is not None:
                places.append(place)
        answers = self._submit(request, items, _suites(places), idempotency)
        return Response({"results": [_result(answer) for answer in answers]})

    @staticmethod
    def _submit(
        request: Request,
        items: Sequence[BatchItem],
        suites: Collection[TaskSuite],
        idempotency: Idempotency | None,
    ) -> Sequence[ItemAnswer]:
        with transaction.atomic():
            _reopen(suites, idempotency)
            answers = submit_batch(
                creator_id=current_user(request).pk, items=items, idempotency=idempotency
            )
            _tell_direct_workers(item.target for item in items if item.target is not None)
            taken = sum(isinstance(answer, Taken) for answer in answers)
            detail = {"taken": taken, "refused": len(answers) - taken}
            record(actor=current_actor(request), action="task.submit_batch", detail=detail)
        return answers


class ArrayView(UserView):
    max_body_bytes = MAX_BULK_BODY_BYTES

    @describe(
        summary="Submit one task per parameter row, all or none",
        request=ARRAY_BODY,
        answer=ArrayAnswer,
        status=201,
        problems=(404, 409, 413),
        parameters=[KEY_HEADER],
    )
    def post(self, request: Request) -> Response:
        idempotency = _idempotency(request)
        body = read_struct(request, SubmitArray)
        targets = Targets(current_user(request))
        place = targets.place(body.template)
        refuse_row_numbers(body.template)
        for index, row in enumerate(body.rows):
            check_priority(place.group, row.priority, field=f"rows[{index}].priority")
        submitted = self._submit(request, body, targets, place, idempotency)
        _tell_direct_workers([place.target])
        count = len(submitted.uuids)
        detail = {"group": place.group.name, "count": count}
        record(
            actor=current_actor(request),
            action="task.submit_array",
            target=str(submitted.uuids[0]),
            detail=detail,
        )
        answer = {
            "first_task_id": submitted.first_number,
            "last_task_id": submitted.first_number + count - 1,
            "count": count,
            "uuids": [str(uuid) for uuid in submitted.uuids],
            "suite_uuid": None if place.suite is None else str(place.suite.uuid),
        }
        return Response(answer, status=201)

    @staticmethod
    def _submit(
        request: Request,
        body: SubmitArray,
        targets: Targets,
        place: Place,
        idempotency: Idempotency | None,
    ) -> SubmittedArray:
        submit = partial(
            submit_array,
            target=place.target,
            creator_id=current_user(request).pk,
            template=targets.task(body.template, place),
            rows=[array_row(row) for row in body.rows],
            idempotency=idempotency,
        )
        if place.suite is None:
            return submit()
        # The suite must not complete between its reopening and the first row.
        with transaction.atomic():
            _reopen([place.suite], idempotency)
            return submit()


def _idempotency(request: Request) -> Idempotency | None:
    """Before the body is parsed: its bytes are what the key stands for."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    return Idempotency.of(user_id=current_user(request).pk, key=key, body=request.body)


def _reopen(suites: Collection[TaskSuite], idempotency: Idempotency | None) -> None:
    """In the transaction of the insert. A repeated request changes nothing, so it opens nothing."""
    if not suites:
        return
    if idempotency is not None:
        rows = Submission.objects.filter(
            user_id=idempotency.user_id, idempotency_key=idempotency.key
        )
        if rows.exists():
            return
    accept_submits([suite.pk for suite in suites])
    for suite in suites:
        tell_of_work(suite)


def _tell_direct_workers(targets: Iterable[Target]) -> None:
    tell_of_tasks({target.group_id for target in targets if target.suite_id is None})


def _suites(places: Collection[Place]) -> Collection[TaskSuite]:
    return {place.suite.pk: place.suite for place in places if place.suite is not None}.values()


def _tasks_of(data: object) -> list[object]:
    tasks = data.get("tasks") if isinstance(data, dict) else None
    if not isinstance(tasks, list):
        raise WrongShape({"tasks": ["Expected `array`"]})
    if not tasks:
        raise InvalidInput("tasks: no tasks given")
    if len(tasks) > MAX_BULK_TASKS:
        raise LimitExceeded(f"tasks: {len(tasks)} given, at most {MAX_BULK_TASKS} are allowed")
    return tasks


def _batch_item(targets: Targets, value: object, index: int) -> tuple[BatchItem, Place | None]:
    """A broken rule is the item's own refusal; a wrong shape refuses the whole body (422)."""
    try:
        body = convert(value, SubmitTask, within=f"tasks[{index}]")
        refuse_row_numbers(body)
        place = targets.place(body)
        return BatchItem(place.target, targets.task(body, place)), place
    except DomainError as error:
        return BatchItem(None, None, error.msg), None


def _result(answer: ItemAnswer) -> dict[str, object]:
    if isinstance(answer, Taken):
        return {"Ok": {"task_id": answer.number, "uuid": str(answer.uuid)}}
    return {"Err": {"msg": answer.msg}}
