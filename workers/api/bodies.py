"""Fields and answers that several worker routes share."""

import uuid
from typing import Any, Final

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request

from accounts.bodies import EnumField, TagsField, TextField
from core.errors import InvalidInput
from mitosis_protocol.enums import Role, RunnerKind, WorkerState
from mitosis_protocol.limits import MAX_LIST_ITEMS

WORKER_UUID: Final = OpenApiParameter("worker_uuid", OpenApiTypes.UUID, OpenApiParameter.PATH)
TASK_UUID: Final = OpenApiParameter("task_uuid", OpenApiTypes.UUID, OpenApiParameter.PATH)


def read_uuid(text: str) -> uuid.UUID:
    """A uuid of a path; what is none is 400 as on the existing server, not an unknown path."""
    try:
        return uuid.UUID(text)
    except ValueError as error:
        raise InvalidInput(f"{text[:64]!r} is not a UUID") from error


def page_of(request: Request) -> tuple[int, int]:
    """Limit and offset of the query."""
    policy = settings.MITOSIS
    limit = _number(request, "limit", default=policy.page_rows, most=policy.page_rows_max)
    return limit, _number(request, "offset", default=0, most=1_000_000)


def _number(request: Request, name: str, *, default: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or int(text) > most:
        raise InvalidInput(f"{name}: a whole number from 0 to {most}")
    return int(text)


class NamesField(serializers.ListField):
    """A set of texts that name groups or workers."""

    child = TextField()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": MAX_LIST_ITEMS, **kwargs})


class WorkerFilterBody(serializers.Serializer[Any]):
    """All conditions hold together. An empty set is refused, because it would ask for nothing."""

    group_name = TextField(
        required=False, allow_null=True, help_text="The caller's own group if absent."
    )
    role = serializers.ListField(child=EnumField(Role), required=False, allow_null=True)
    tags = TagsField(required=False, allow_null=True)
    labels = TagsField(required=False, allow_null=True)
    creator_username = TextField(required=False, allow_null=True)


class WorkerInfo(serializers.Serializer[Any]):
    worker_id = serializers.UUIDField()
    creator_username = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    labels = serializers.ListField(child=serializers.CharField())
    created_at = serializers.CharField(help_text="Like `2025-11-11 03:07:09.0 +00:00:00`.")
    updated_at = serializers.CharField()
    state = EnumField(WorkerState)
    last_heartbeat = serializers.CharField()
    assigned_task_id = serializers.UUIDField(allow_null=True, help_text="The uuid of its task.")
    kind = EnumField(RunnerKind)


class WorkerAnswer(serializers.Serializer[Any]):
    info = WorkerInfo()
    groups = serializers.DictField(child=EnumField(Role), help_text="Groups that accepted it.")
    pending_groups = serializers.DictField(
        child=EnumField(Role), help_text="Groups that have not answered yet."
    )
