"""Live output of a task, as plain text from an offset on."""

from typing import Final
from uuid import UUID

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from accounts.guards import current_user
from accounts.schema import describe
from accounts.views import UserView
from core.drf import CompactJSONRenderer
from core.errors import InvalidInput
from mitosis_protocol.enums import Role
from mitosis_protocol.limits import MAX_LOG_BYTES_PER_ATTEMPT
from tasks.models import ArchivedTask
from tasks.selectors import access_task
from tasks.services.logs import LogStream, read_log

# Output is written by whoever runs commands: a browser may show it and nothing else.
SANDBOX: Final = "sandbox; default-src 'none'"
_MAX_ATTEMPT: Final = 2**31 - 1


class TextRenderer(CompactJSONRenderer):
    """Lets a caller that accepts only text in; refusals are JSON text all the same."""

    media_type = "text/plain"
    format = "txt"


class LogsView(UserView):
    renderer_classes = (CompactJSONRenderer, TextRenderer)

    @describe(
        summary="Output of a task; `X-Next-Offset` says where to go on",
        answer=OpenApiTypes.STR,
        problems=(404,),
        parameters=[
            OpenApiParameter(
                "stream", OpenApiTypes.STR, required=True, enum=[item.value for item in LogStream]
            ),
            OpenApiParameter(
                "offset",
                {"type": "integer", "minimum": 0, "maximum": MAX_LOG_BYTES_PER_ATTEMPT},
                description="Bytes already read; 0 if absent.",
            ),
            OpenApiParameter(
                "attempt",
                {"type": "integer", "minimum": 1, "maximum": _MAX_ATTEMPT},
                description="The newest one if absent.",
            ),
            OpenApiParameter(
                "X-Next-Offset", OpenApiTypes.INT, OpenApiParameter.HEADER, response=[200]
            ),
            OpenApiParameter(
                "X-Log-Complete",
                OpenApiTypes.STR,
                OpenApiParameter.HEADER,
                response=[200],
                enum=["true", "false"],
                description="`true` when nothing will follow.",
            ),
        ],
    )
    def get(self, request: Request, task_uuid: UUID) -> HttpResponse:
        task = access_task(current_user(request), task_uuid, Role.READ)
        stream = _stream(request)
        offset = _number(request, "offset", default=0, most=MAX_LOG_BYTES_PER_ATTEMPT)
        attempt = _number(request, "attempt", default=task.attempt, most=_MAX_ATTEMPT)
        is_over = isinstance(task, ArchivedTask) or attempt < task.attempt
        part = read_log(task.uuid, attempt, stream, offset=offset, skip_gaps=is_over)
        response = HttpResponse(part.data, content_type="text/plain; charset=utf-8")
        response.headers["X-Next-Offset"] = str(part.next_offset)
        response.headers["X-Log-Complete"] = "true" if is_over and not part.has_more else "false"
        response.headers["Content-Security-Policy"] = SANDBOX
        response.headers["Cache-Control"] = "no-store"
        return response


def _stream(request: Request) -> LogStream:
    text = request.query_params.get("stream", "")
    try:
        return LogStream(text)
    except ValueError as error:
        raise InvalidInput("stream: it has to be stdout or stderr") from error


def _number(request: Request, name: str, *, default: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 12 or int(text) > most:
        raise InvalidInput(f"{name}: a whole number from 0 to {most} is needed")
    return int(text)
