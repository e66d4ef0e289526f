"""Webhooks of a group, for its admins."""

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField, FlagField, TextField, read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.selectors import access_group
from accounts.views import UserView
from mitosis_protocol.enums import NoticeKind, Role
from notifications.models import Webhook
from notifications.selectors import access_webhook, list_webhooks
from notifications.services import subscriptions


class EventsField(serializers.ListField):
    """A list of event names."""

    child = EnumField(NoticeKind)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": 20, **kwargs})


class NewWebhook(serializers.Serializer[Any]):
    url = TextField(help_text="An https address; its host may not be private.")
    events = EventsField()


class WebhookChanges(serializers.Serializer[Any]):
    url = TextField(required=False)
    events = EventsField(required=False)
    enabled = FlagField(required=False)


class WebhookInfo(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    url = serializers.CharField()
    events = EventsField()
    enabled = serializers.BooleanField()
    created_at = serializers.DateTimeField()


class WebhookList(serializers.Serializer[Any]):
    webhooks = WebhookInfo(many=True)


class WebhookSecret(serializers.Serializer[Any]):
    secret = serializers.CharField(help_text="Shown this once; the receiver checks with it.")


class CreatedWebhook(WebhookInfo, WebhookSecret):
    """The webhook and its secret."""


class WebhooksView(UserView):
    @extend_schema(operation_id="groups_webhooks_list")
    @describe(summary="Webhooks of a group", answer=WebhookList, problems=(404,))
    def get(self, request: Request, group_name: str) -> Response:
        found = list_webhooks(current_user(request), group_name)
        return Response({"webhooks": [shown(webhook) for webhook in found]})

    @describe(
        summary="Be told of events of a group; the answer has the secret, once",
        request=NewWebhook,
        answer=CreatedWebhook,
        problems=(403, 404),
        status=201,
    )
    def post(self, request: Request, group_name: str) -> Response:
        user = current_user(request)
        group = access_group(user, group_name, Role.ADMIN).group
        body = read_body(request, NewWebhook)
        webhook = subscriptions.create_webhook(
            actor=current_actor(request),
            creator=user,
            group=group,
            url=body["url"],
            kinds=body["events"],
        )
        answer = {**shown(webhook), "secret": subscriptions.secret_for(webhook)}
        return Response(answer, status=201)


class WebhookView(UserView):
    @describe(summary="One webhook", answer=WebhookInfo, problems=(404,))
    def get(self, request: Request, group_name: str, webhook_uuid: uuid.UUID) -> Response:
        return Response(shown(access_webhook(current_user(request), group_name, webhook_uuid)))

    @describe(
        summary="Change a webhook; what waits goes to the new address",
        request=WebhookChanges,
        answer=WebhookInfo,
        problems=(404,),
    )
    def patch(self, request: Request, group_name: str, webhook_uuid: uuid.UUID) -> Response:
        webhook = access_webhook(current_user(request), group_name, webhook_uuid)
        body = read_body(request, WebhookChanges)
        changed = subscriptions.change_webhook(
            actor=current_actor(request),
            webhook=webhook,
            url=body.get("url"),
            kinds=body.get("events"),
            is_enabled=body.get("enabled"),
        )
        return Response(shown(changed))

    @describe(summary="Remove a webhook and its log", problems=(404,), status=204)
    def delete(self, request: Request, group_name: str, webhook_uuid: uuid.UUID) -> Response:
        webhook = access_webhook(current_user(request), group_name, webhook_uuid)
        subscriptions.delete_webhook(actor=current_actor(request), webhook=webhook)
        return Response(status=204)


class SecretView(UserView):
    @describe(
        summary="A new secret, in force at once",
        answer=WebhookSecret,
        problems=(404,),
        status=201,
    )
    def post(self, request: Request, group_name: str, webhook_uuid: uuid.UUID) -> Response:
        webhook = access_webhook(current_user(request), group_name, webhook_uuid)
        secret = subscriptions.rotate_secret(actor=current_actor(request), webhook=webhook)
        return Response({"secret": secret}, status=201)


def shown(webhook: Webhook) -> dict[str, object]:
    """Everything but the secret."""
    return {
        "uuid": str(webhook.uuid),
        "url": webhook.url,
        "events": [NoticeKind.from_code(code).value for code in webhook.kinds],
        "enabled": webhook.is_enabled,
        "created_at": webhook.created_at,
    }
