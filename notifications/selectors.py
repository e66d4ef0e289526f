"""Reads of webhooks and their log. Owners only: the caller has to be Admin in the group."""

from uuid import UUID

from accounts.models import User
from accounts.selectors import access_group
from core.errors import NotFound
from mitosis_protocol.enums import Role
from notifications.models import Webhook, WebhookDelivery


def list_webhooks(actor: User, group_name: str) -> list[Webhook]:
    """All webhooks of a group, oldest first."""
    group = access_group(actor, group_name, Role.ADMIN).group
    return list(Webhook.objects.filter(group_id=group.pk).order_by("pk"))


def access_webhook(actor: User, group_name: str, uuid: UUID) -> Webhook:
    """One webhook of a group; that of another group is absent."""
    group = access_group(actor, group_name, Role.ADMIN).group
    webhook = Webhook.objects.filter(group_id=group.pk, uuid=uuid).first()
    if webhook is None:
        raise NotFound("Webhook not found")
    return webhook


def list_deliveries(
    webhook: Webhook, *, before: int | None, max_rows: int
) -> list[WebhookDelivery]:
    """The newest first; `before` is the id of the last one seen."""
    rows = WebhookDelivery.objects.filter(webhook_id=webhook.pk)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows.order_by("-pk")[:max_rows])


def get_delivery(webhook: Webhook, uuid: UUID) -> WebhookDelivery:
    delivery = WebhookDelivery.objects.filter(webhook_id=webhook.pk, uuid=uuid).first()
    if delivery is None:
        raise NotFound("Delivery not found")
    return delivery
