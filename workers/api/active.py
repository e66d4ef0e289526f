"""Who of a group's workers is alive now, with what each said of itself."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.guards import current_user
from accounts.schema import describe
from accounts.selectors import access_group
from accounts.views import UserView
from mitosis_protocol.enums import Role
from mitosis_protocol.timestamps import format_rfc3339
from workers.api.bodies import page_of
from workers.models import Worker
from workers.selectors import list_active_workers


class ActiveWorker(serializers.Serializer[Any]):
    worker_id = serializers.UUIDField()
    status = serializers.ChoiceField(choices=["active"])
    last_seen_at = serializers.CharField()
    active_tasks = serializers.IntegerField()
    minutes_since_heartbeat = serializers.IntegerField()
    metadata = serializers.DictField(help_text="Of its last heartbeat that had some.")


class ActiveWorkersAnswer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Of all pages together.")
    workers = ActiveWorker(many=True)
    limit = serializers.IntegerField()
    offset = serializers.IntegerField()


class ActiveView(UserView):
    @extend_schema(operation_id="workers_active")
    @describe(
        summary="The workers of a group whose last heartbeat still counts",
        answer=ActiveWorkersAnswer,
        problems=(404,),
        parameters=[
            OpenApiParameter(
                "group_name", OpenApiTypes.STR, description="The caller's own if absent."
            ),
            OpenApiParameter("limit", OpenApiTypes.INT),
            OpenApiParameter("offset", OpenApiTypes.INT),
        ],
    )
    def get(self, request: Request) -> Response:
        user = current_user(request)
        limit, offset = page_of(request)
        name = request.query_params.get("group_name", user.username)
        rows = list_active_workers(access_group(user, name, Role.READ).group)
        page = list(rows[offset : offset + limit])
        metadata = Worker.objects.in_bulk([row.runner_id for row in page])
        workers = [
            {
                "worker_id": str(row.worker_id),
                "status": row.status,
                "last_seen_at": format_rfc3339(row.last_seen_at),
                "active_tasks": row.active_tasks,
                "minutes_since_heartbeat": row.minutes_since_heartbeat,
                "metadata": metadata[row.runner_id].metadata or {},
            }
            for row in page
        ]
        return Response(
            {"count": rows.count(), "workers": workers, "limit": limit, "offset": offset}
        )
