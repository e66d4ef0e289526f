"""What the OpenAPI document says about the worker side.

Those views are plain functions; each is described by a class here, which is never called
(endpoint.route hands it to the schema generator).
"""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.schema import describe
from mitosis_protocol.enums import ArtifactContentType
from runners.authentication import RunnerRequired, WorkerTokenAuthentication
from workers.api.announcement import HEADER
from workers.api.bodies import TASK_UUID
from workers.api.registration import RegisterView

ANNOUNCEMENT = OpenApiParameter(
    HEADER,
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    enum=["1"],
    description="Sent by workers that understand more than the existing API.",
)


class _Described(APIView):
    authentication_classes = (WorkerTokenAuthentication,)
    permission_classes = (RunnerRequired,)


_INTEGER = {"type": "integer", "format": "int64"}
_UUID = {"type": "string", "format": "uuid"}
# By hand: the generator cannot say "this object or null".
_OFFER = {
    "type": "object",
    "nullable": True,
    "description": "A task, or `null` when there is none or none can be given now.",
    "properties": {
        "id": {**_INTEGER, "description": "Of the attempt; every report names it."},
        "uuid": _UUID,
        "timeout": {"type": "string", "description": "Like `1h 30m`."},
        "upstream_task_uuid": {**_UUID, "nullable": True},
        "spec": {"type": "object", "additionalProperties": True},
        "attempt": {**_INTEGER, "description": "1 for the first time it is handed out."},
        "live_logs": {"type": "boolean", "description": "Output is welcome while it runs."},
    },
    "required": ["id", "uuid", "timeout", "upstream_task_uuid", "spec", "attempt", "live_logs"],
}
_STOP = {
    "type": "object",
    "nullable": True,
    "description": f"With `{HEADER}: 1`; otherwise, and when in trouble, `null`.",
    "properties": {
        "cancel": {
            "type": "array",
            "items": _INTEGER,
            "description": "Attempts to stop and report.",
        },
        "revoked": {
            "type": "array",
            "items": _INTEGER,
            "description": "Attempts to stop and say nothing more about.",
        },
    },
    "required": ["cancel", "revoked"],
}
_NOTHING = {"nullable": True, "enum": [None], "description": "Always `null`."}


class WorkerReport(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    op = serializers.JSONField(
        help_text='`"Finish"`, `"Cancel"`, `{"Upload": {content_type, content_length}}`, '
        '`{"Submit": task}` or `{"Commit": {exit_status, msg}}`.'
    )


class WorkerReportAnswer(serializers.Serializer[Any]):
    url = serializers.CharField(allow_null=True, help_text="Where to PUT, after Upload.")


class WorkerResourceLocation(serializers.Serializer[Any]):
    url = serializers.CharField(help_text="Readable without further credentials.")
    size = serializers.IntegerField()


class WorkerHeartbeat(serializers.Serializer[Any]):
    held = serializers.ListField(
        child=serializers.IntegerField(), required=False, help_text="Attempts in hand."
    )


class WorkerMetadataBeat(serializers.Serializer[Any]):
    worker_id = serializers.UUIDField(help_text="The caller's own.")
    metadata = serializers.DictField(required=False)


class WorkerMetadataBeatAnswer(serializers.Serializer[Any]):
    success = serializers.BooleanField()
    message = serializers.CharField()
    next_heartbeat_in = serializers.IntegerField(help_text="Seconds.")


class DutyDocs(_Described):
    @extend_schema(operation_id="workers_tasks_fetch")
    @describe(
        summary="The next task, or for a busy worker the one it holds",
        answer=OpenApiResponse(_OFFER),
    )
    def get(self, request: Request) -> Response:
        raise NotImplementedError

    @extend_schema(operation_id="workers_tasks_report")
    @describe(
        summary="Report about the attempt in hand",
        request=WorkerReport,
        answer=WorkerReportAnswer,
        problems=(404,),
    )
    def post(self, request: Request) -> Response:
        raise NotImplementedError


class TaskDocs(_Described):
    @describe(
        summary="A task of the group of the task in hand, for `watch`",
        answer=OpenApiTypes.OBJECT,
        problems=(404,),
        parameters=[TASK_UUID],
    )
    def get(self, request: Request) -> Response:
        raise NotImplementedError


class ArtifactDocs(_Described):
    @describe(
        summary="Where an archive of a task of the same group can be read",
        answer=WorkerResourceLocation,
        problems=(404,),
        parameters=[
            TASK_UUID,
            OpenApiParameter(
                "content_type",
                OpenApiTypes.STR,
                OpenApiParameter.PATH,
                enum=[kind.value for kind in ArtifactContentType],
            ),
        ],
    )
    def get(self, request: Request) -> Response:
        raise NotImplementedError


class AttachmentDocs(_Described):
    @describe(
        summary="Where a file of the group of the task in hand can be read",
        answer=WorkerResourceLocation,
        problems=(404,),
        parameters=[TASK_UUID],
    )
    def get(self, request: Request) -> Response:
        raise NotImplementedError


class LogsDocs(_Described):
    @describe(
        summary="Output of the running command, from an offset on",
        request={"text/plain": OpenApiTypes.BINARY},
        answer=OpenApiResponse(_NOTHING),
        problems=(404, 409, 413),
        parameters=[
            TASK_UUID,
            OpenApiParameter("stream", OpenApiTypes.STR, required=True, enum=["stdout", "stderr"]),
            OpenApiParameter("offset", OpenApiTypes.INT, required=True),
        ],
    )
    def post(self, request: Request) -> Response:
        raise NotImplementedError


class HeartbeatDocs(_Described):
    @describe(
        summary="Renew the lease; workers that announce themselves learn what to stop",
        request=WorkerHeartbeat,
        answer=OpenApiResponse(_STOP),
        parameters=[ANNOUNCEMENT],
    )
    def post(self, request: Request) -> Response:
        raise NotImplementedError


class MetadataBeatDocs(_Described):
    @describe(
        summary="Renew the lease and say something about the worker",
        request=WorkerMetadataBeat,
        answer=WorkerMetadataBeatAnswer,
    )
    def post(self, request: Request) -> Response:
        raise NotImplementedError


class RootDocs(RegisterView):
    """Users register here, workers leave here."""

    @extend_schema(
        operation_id="workers_leave",
        auth=[{"workerToken": []}],  # type: ignore[list-item]  # their stub
    )
    @describe(
        summary="Leave; the task in hand goes back to the queue", answer=OpenApiResponse(_NOTHING)
    )
    def delete(self, request: Request) -> Response:
        raise NotImplementedError
