"""The log of one webhook, and deliveries that a person asks for."""

import uuid
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.views import UserView
from core.errors import InvalidInput
from mitosis_protocol.enums import DeliveryState, NoticeKind
from notifications.models import WebhookDelivery
from notifications.selectors import access_webhook, get_delivery, list_deliveries
from notifications.services import subscriptions

PAGE: Final = 100


class DeliveryInfo(serializers.Serializer[Any]):
    id = serializers.IntegerField()
    uuid = serializers.UUIDField()
    event = EnumField(NoticeKind)
    state = EnumField(DeliveryState)
    created_at = serializers.DateTimeField()
    tries = serializers.IntegerField()
    next_try_at = serializers.DateTimeField(allow_null=True)
    last_status = serializers.IntegerField(allow_null=True)
    last_error = serializers.CharField()
    delivered_at = serializers.DateTimeField(allow_null=True)


class DeliveryList(serializers.Serializer[Any]):
    deliveries = DeliveryInfo(many=True)


class PingAnswer(serializers.Serializer[Any]):
    uuid = serializers.UUIDField(help_text="Of the delivery, for the log.")


class DeliveriesView(UserView):
    @describe(
        summary="What a webhook was told, newest first",
        answer=DeliveryList,
        problems=(404,),
        parameters=[
            OpenApiParameter(
                "before", OpenApiTypes.INT, description="The `id` of the last one seen."
            )
        ],
    )
    def get(self, request: Request, group_name: str, webhook_uuid: uuid.UUID) -> Response:
        webhook = access_webhook(current_user(request), group_name, webhook_uuid)
        rows = list_deliveries(webhook, before=_before(request), max_rows=PAGE)
        return Response({"deliveries": [_shown(row) for row in rows]})


class PingView(UserView):
    @describe(summary="Deliver a `ping` now", answer=PingAnswer, problems=(404,), status=201)
    def post(self, request: Request, group_name: str, webhook_uuid: uuid.UUID) -> Response:
        webhook = access_webhook(current_user(request), group_name, webhook_uuid)
        delivery = subscriptions.ping(actor=current_actor(request), webhook=webhook)
        return Response({"uuid": str(delivery.uuid)}, status=201)


class RedeliverView(UserView):
    @describe(summary="Deliver something again", problems=(404,), status=204)
    def post(
        self,
        request: Request,
        group_name: str,
        webhook_uuid: uuid.UUID,
        delivery_uuid: uuid.UUID,
    ) -> Response:
        webhook = access_webhook(current_user(request), group_name, webhook_uuid)
        delivery = get_delivery(webhook, delivery_uuid)
        subscriptions.redeliver(actor=current_actor(request), delivery=delivery)
        return Response(status=204)


def _before(request: Request) -> int | None:
    given = request.query_params.get("before")
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise InvalidInput("before: it has to be the id of a delivery")
    return int(given)


def _shown(row: WebhookDelivery) -> dict[str, object]:
    is_waiting = row.state is DeliveryState.WAITING
    return {
        "id": row.pk,
        "uuid": str(row.uuid),
        "event": row.kind.value,
        "state": row.state.value,
        "created_at": row.created_at,
        "tries": row.tries,
        "next_try_at": row.next_try_at if is_waiting else None,
        "last_status": row.last_status,
        "last_error": row.last_error,
        "delivered_at": row.delivered_at,
    }
