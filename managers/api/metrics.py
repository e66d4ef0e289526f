"""What a manager measured: its newest sample, and its history over a window. For users."""

import uuid
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.guards import current_user
from accounts.schema import describe
from accounts.views import UserView
from core.errors import InvalidInput
from managers.api.bodies import seconds_of
from managers.metrics import OWN
from managers.selectors import access_manager
from managers.selectors_metrics import COMPLETED, FAILED, History, read_history
from mitosis_protocol.durations import format_duration
from mitosis_protocol.enums import Role
from mitosis_protocol.timestamps import format_rfc3339

DEFAULT_WINDOW: Final = "1h"
MIN_WINDOW_S: Final = 60
MAX_WINDOW_S: Final = 90 * 24 * 3600
WINDOW: Final = OpenApiParameter(
    "window",
    OpenApiTypes.STR,
    description="From `1m` to `90d`, `1h` unless given. Above a day by the hour.",
)


class ManagerSeries(serializers.Serializer[Any]):
    at = serializers.ListField(child=serializers.CharField(), help_text="Where each step begins.")
    families = serializers.DictField(
        child=serializers.DictField(
            child=serializers.ListField(child=serializers.FloatField(allow_null=True))
        ),
        help_text="Family, name, mean of each step; null where it was not measured.",
    )


class TaskThroughput(serializers.Serializer[Any]):
    completed = serializers.FloatField()
    failed = serializers.FloatField()
    completed_per_minute = serializers.FloatField()


class ManagerMetricsAnswer(serializers.Serializer[Any]):
    manager_id = serializers.UUIDField()
    time_window = serializers.CharField()
    resolution = serializers.CharField(help_text="The length of a step, like `30s`.")
    latest = serializers.DictField(allow_null=True, help_text="As the manager sent it.")
    at = serializers.CharField()
    system_metrics = serializers.ListField(child=serializers.DictField())
    task_throughput = TaskThroughput(help_text="Over the whole window.")
    worker_health = serializers.DictField(help_text="The newest numbers about its workers.")
    series = ManagerSeries()


class MetricsView(UserView):
    @describe(
        summary="What a manager measured, newest and over a window",
        answer=ManagerMetricsAnswer,
        problems=(404,),
        parameters=[WINDOW],
    )
    def get(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        node = access_manager(current_user(request), manager_uuid, Role.READ)
        text = request.query_params.get("window", DEFAULT_WINDOW)
        window_s = seconds_of("window", text)
        if not MIN_WINDOW_S <= window_s <= MAX_WINDOW_S:
            raise InvalidInput("window: from 1m to 90d")
        history = read_history(node.pk, window_s=window_s)
        return Response(
            {
                "manager_id": str(manager_uuid),
                "time_window": text,
                "resolution": format_duration(history.step_s),
                "latest": node.metrics,
                "at": format_rfc3339(node.last_heartbeat),
                "system_metrics": [
                    {"at": format_rfc3339(at), **numbers}
                    for at, numbers in history.points("system")
                ],
                "task_throughput": _throughput(history, window_s),
                "worker_health": _worker_health(history),
                "series": {
                    "at": [format_rfc3339(at) for at in history.at],
                    "families": history.families(),
                },
            }
        )


def _throughput(history: History, window_s: int) -> dict[str, float]:
    completed = history.growth(COMPLETED)
    # A manager that is younger than the window is not slower for it.
    span_s = min(window_s, len(history.at) * history.step_s) or window_s
    return {
        "completed": completed,
        "failed": history.growth(FAILED),
        "completed_per_minute": round(60 * completed / span_s, 3),
    }


def _worker_health(history: History) -> dict[str, float]:
    pool = history.points("worker_pool")
    own = history.points(OWN)
    health = {} if not own else {"active_workers": own[-1][1].get("active_workers", 0.0)}
    return health if not pool else {**health, **pool[-1][1]}
