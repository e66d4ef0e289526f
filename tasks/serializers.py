"""Fields and answers that several routes of tasks share; also what the OpenAPI document shows.

Strict like accounts.bodies: a value of the wrong JSON type is refused, never converted.
"""

from typing import Any, Final
from uuid import UUID

from rest_framework import serializers
from typing_extensions import override

from accounts.bodies import EnumField, TextField, WholeNumberField
from mitosis_protocol.enums import (
    ArtifactContentType,
    AttachmentContentType,
    Outcome,
    TaskResultMessage,
    TaskState,
)
from mitosis_protocol.limits import MAX_LIST_ITEMS

LEGACY_TIME: Final = "Like `2025-11-11 03:07:09.0 +00:00:00`."
MAX_INT64: Final = 2**63 - 1


class UuidField(serializers.UUIDField):
    """A JSON string with hyphens; DRF's own field takes integers as well."""

    @override
    def to_internal_value(self, data: object) -> UUID:
        if not isinstance(data, str):
            self.fail("invalid", value=str(data)[:64])
        found: UUID = super().to_internal_value(data)
        return found


class UuidListField(serializers.ListField):
    """Uuids of tasks; whether it may be empty is the route's rule (400, not 422)."""

    child = UuidField()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": MAX_LIST_ITEMS, **kwargs})


class KeyListField(serializers.ListField):
    """Keys of attachments."""

    child = TextField()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": MAX_LIST_ITEMS, **kwargs})


class SizeField(WholeNumberField):
    """A number of bytes that a PUT will have."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 0, "max_value": MAX_INT64, **kwargs})


class PageBody(serializers.Serializer[Any]):
    """Which part of a list."""

    limit = WholeNumberField(required=False, allow_null=True, min_value=0, max_value=MAX_INT64)
    offset = WholeNumberField(required=False, allow_null=True, min_value=0, max_value=MAX_INT64)


class TaskResult(serializers.Serializer[Any]):
    exit_status = serializers.IntegerField(help_text="Raw wait status: exit code n is n*256.")
    msg = EnumField(TaskResultMessage, allow_null=True)


class TaskInfo(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    creator_username = serializers.CharField()
    group_name = serializers.CharField()
    task_id = serializers.IntegerField(help_text="Counts from 1 within the group.")
    tags = serializers.ListField(child=serializers.CharField())
    labels = serializers.ListField(child=serializers.CharField())
    created_at = serializers.CharField(help_text=LEGACY_TIME)
    updated_at = serializers.CharField(help_text=LEGACY_TIME)
    state = EnumField(TaskState)
    timeout = serializers.IntegerField(help_text="Seconds.")
    priority = serializers.IntegerField()
    spec = serializers.DictField(help_text="The TaskSpec it was submitted with.")
    result = TaskResult(allow_null=True)
    upstream_task_uuid = serializers.UUIDField(allow_null=True)
    downstream_task_uuid = serializers.UUIDField(allow_null=True)
    reporter_uuid = serializers.UUIDField(allow_null=True, help_text="The runner that committed.")
    outcome = EnumField(Outcome, allow_null=True, help_text="How it ended; null until then.")
    reason = serializers.CharField(allow_null=True, help_text="Why the coordinator ended it.")
    suite_uuid = serializers.UUIDField(allow_null=True)
    rerun_of = serializers.UUIDField(allow_null=True, help_text="The ended task it runs again.")
    attempt = serializers.IntegerField(help_text="How often it was claimed.")
    failures = serializers.IntegerField(help_text="Crashes charged so far.")
    cancelling = serializers.BooleanField(help_text="A cancel waits for its runner to stop it.")
    middleware = serializers.DictField(
        allow_null=True,
        help_text="Of a node in a chain: `middlewares` of a host, `host_node_id` and `chain_index`"
        " of a middleware.",
    )


class ArtifactInfo(serializers.Serializer[Any]):
    content_type = EnumField(ArtifactContentType)
    size = serializers.IntegerField()
    created_at = serializers.CharField(help_text=LEGACY_TIME)
    updated_at = serializers.CharField(help_text=LEGACY_TIME)


class TaskAnswer(serializers.Serializer[Any]):
    info = TaskInfo()
    artifacts = ArtifactInfo(many=True)
    report = serializers.DictField(
        allow_null=True, help_text="What its runner added: facts, a node's outputs and artifacts."
    )


class UploadAnswer(serializers.Serializer[Any]):
    exist = serializers.BooleanField(help_text="Whether something was uploaded there before.")
    url = serializers.CharField(help_text="PUT exactly the announced number of bytes here.")


class DownloadAnswer(serializers.Serializer[Any]):
    url = serializers.CharField()
    size = serializers.IntegerField()


class AttachmentAnswer(serializers.Serializer[Any]):
    content_type = EnumField(AttachmentContentType)
    size = serializers.IntegerField()
    created_at = serializers.CharField(help_text=LEGACY_TIME)
    updated_at = serializers.CharField(help_text=LEGACY_TIME)
    sha256 = serializers.CharField(allow_null=True, help_text="As the uploader announced it.")


class AttachmentItem(AttachmentAnswer):
    key = serializers.CharField()
