"""The console's pages for webhooks: subscriptions, and the log with its one action."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from accounts.admin import operator
from core.admin import AuditedAction, ReadOnlyAdmin
from mitosis_protocol.enums import NoticeKind
from notifications.models import Webhook, WebhookDelivery
from notifications.services.subscriptions import redeliver


@admin.register(Webhook)
class WebhookAdmin(ReadOnlyAdmin):
    list_display = ("uuid", "group", "url", "events", "is_enabled", "created_by", "created_at")
    list_select_related = ("group", "created_by")
    list_filter = ("is_enabled",)
    search_fields = ("=uuid", "=group__name")

    @admin.display(description="events")
    def events(self, webhook: Webhook) -> str:
        return ", ".join(NoticeKind.from_code(code).value for code in webhook.kinds)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(AuditedAction, ReadOnlyAdmin):
    list_display = (
        "uuid",
        "webhook",
        "kind",
        "state",
        "created_at",
        "tries",
        "last_status",
        "last_error",
        "delivered_at",
    )
    list_select_related = ("webhook",)
    list_filter = ("state", "kind")
    search_fields = ("=uuid", "=webhook__uuid", "=subject")
    actions = ("deliver_again",)

    @admin.action(description="Deliver again, with the same id")
    def deliver_again(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            "redeliver",
            lambda delivery: redeliver(actor=actor, delivery=delivery),
        )
