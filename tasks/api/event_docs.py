"""What the OpenAPI document says about the asynchronous routes; these classes are never called."""

from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField
from accounts.schema import Problem, describe
from accounts.views import UserView
from mitosis_protocol.enums import Outcome, TaskPhase
from tasks.enums import EventKind
from tasks.services.events import MAX_EVENTS

TASK_UUID: Final = OpenApiParameter("task_uuid", OpenApiTypes.UUID, OpenApiParameter.PATH)


class EventItem(serializers.Serializer[Any]):
    seq = serializers.IntegerField(help_text="Counts from 1 within its task.", allow_null=True)
    at = serializers.DateTimeField()
    kind = EnumField(EventKind)
    state = EnumField(TaskPhase, allow_null=True)
    outcome = EnumField(Outcome, allow_null=True)
    attempt = serializers.IntegerField(allow_null=True)
    runner_uuid = serializers.UUIDField(allow_null=True)
    data = serializers.JSONField(allow_null=True)  # type: ignore[assignment]  # moved by DRF
    cursor = serializers.CharField()
    group_name = serializers.CharField(allow_null=True)
    task_uuid = serializers.UUIDField(allow_null=True)
    suite_uuid = serializers.UUIDField(allow_null=True)


class EventsAnswer(serializers.Serializer[Any]):
    events = EventItem(many=True)
    cursor = serializers.CharField(help_text="Where to go on; it moves on its own.")
    is_end = serializers.BooleanField(help_text="Nothing more for now.")


# One server-sent event, as its fields are named on the wire.
SSE_EVENT: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "For `Last-Event-ID`; not on every event."},
        "event": {"type": "string", "enum": ["node.state", "node.result.delta"]},
        "data": {
            "type": "string",
            "description": "JSON: what happened, or `{attempt, stream, available}` for output.",
        },
    },
    "required": ["event", "data"],
}


class TaskEventsDocs(UserView):
    @extend_schema(
        summary="What happens to a task, as server-sent events",
        parameters=[
            TASK_UUID,
            OpenApiParameter("Last-Event-ID", OpenApiTypes.INT, OpenApiParameter.HEADER),
            OpenApiParameter("last_event_id", OpenApiTypes.INT),
        ],
        responses={
            (200, "text/event-stream"): SSE_EVENT,
            204: OpenApiResponse(description="The task is over and everything was read."),
            "4XX": OpenApiResponse(Problem, description="Refused."),
            503: OpenApiResponse(Problem, description="A store does not answer; try again."),
        },
    )
    def get(self, request: Request) -> Response:
        raise NotImplementedError


class GroupEventsDocs(UserView):
    @describe(
        summary="What happened in the caller's groups behind a cursor",
        answer=EventsAnswer,
        parameters=[
            OpenApiParameter(
                "cursor",
                OpenApiTypes.STR,
                description="Of the last answer. Empty: from the beginning; `newest`: from now.",
            ),
            OpenApiParameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_EVENTS}),
        ],
    )
    def get(self, request: Request) -> Response:
        raise NotImplementedError
