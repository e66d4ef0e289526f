"""Routes of webhooks, at the root, without trailing slashes. Names match notifications.policy."""

from django.urls import URLPattern, URLResolver, path

from notifications.api import deliveries, webhooks

_ALL = "groups/<str:group_name>/webhooks"
_ONE = f"{_ALL}/<uuid:webhook_uuid>"

urlpatterns: list[URLPattern | URLResolver] = [
    path(_ALL, webhooks.WebhooksView.as_view(), name="webhooks"),
    path(_ONE, webhooks.WebhookView.as_view(), name="webhook"),
    path(f"{_ONE}/secret", webhooks.SecretView.as_view(), name="webhook-secret"),
    path(f"{_ONE}/ping", deliveries.PingView.as_view(), name="webhook-ping"),
    path(f"{_ONE}/deliveries", deliveries.DeliveriesView.as_view(), name="webhook-deliveries"),
    path(
        f"{_ONE}/deliveries/<uuid:delivery_uuid>/redeliver",
        deliveries.RedeliverView.as_view(),
        name="webhook-redeliver",
    ),
]
