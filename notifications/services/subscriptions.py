"""Subscriptions of groups: made, changed, removed, with a new secret; and deliveries asked for.

Every change is audited; neither secrets nor query strings of addresses go into the log.
"""

from collections.abc import Collection
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.models import Group, User
from accounts.services.audit import record
from core.errors import InvalidInput, QuotaExceeded
from mitosis_protocol.enums import DeliveryState, NoticeKind
from notifications.models import MAX_URL_CHARS, Webhook, WebhookDelivery
from notifications.signing import secret_of
from notifications.targets import checked_url


def secret_for(webhook: Webhook) -> str:
    """The secret in force; shown to the owner when it is made, and only then."""
    return secret_of(key=settings.SECRET_KEY, webhook=webhook.uuid, version=webhook.secret_version)


def create_webhook(
    *, actor: Actor, creator: User, group: Group, url: str, kinds: Collection[NoticeKind]
) -> Webhook:
    """A new subscription. Raises InvalidInput and QuotaExceeded."""
    codes = _codes(kinds)
    _check_url(url)
    with transaction.atomic():
        # The group's row is the lock: two at once may not pass the limit together.
        Group.objects.select_for_update().get(pk=group.pk)
        limit = settings.MITOSIS.webhooks_per_group
        if Webhook.objects.filter(group_id=group.pk).count() >= limit:
            raise QuotaExceeded(f"a group may have {limit} webhooks")
        webhook = Webhook.objects.create(
            group_id=group.pk, url=url, kinds=codes, created_by_id=creator.pk
        )
        _audit(actor, "webhook.create", webhook)
    return webhook


def change_webhook(
    *,
    actor: Actor,
    webhook: Webhook,
    url: str | None = None,
    kinds: Collection[NoticeKind] | None = None,
    is_enabled: bool | None = None,
) -> Webhook:
    """Change what is given. What waits for delivery goes to the new address."""
    changes: dict[str, object] = {}
    if url is not None:
        _check_url(url)
        changes["url"] = url
    if kinds is not None:
        changes["kinds"] = _codes(kinds)
    if is_enabled is not None:
        changes["is_enabled"] = is_enabled
    with transaction.atomic():
        Webhook.objects.filter(pk=webhook.pk).update(**changes, updated_at=Now())
        webhook.refresh_from_db()
        _audit(actor, "webhook.change", webhook)
    return webhook


def rotate_secret(*, actor: Actor, webhook: Webhook) -> str:
    """A new secret, in force at once; the old one signs nothing any more."""
    with transaction.atomic():
        Webhook.objects.filter(pk=webhook.pk).update(
            secret_version=F("secret_version") + 1, updated_at=Now()
        )
        webhook.refresh_from_db()
        _audit(actor, "webhook.rotate", webhook)
    return secret_for(webhook)


def delete_webhook(*, actor: Actor, webhook: Webhook) -> None:
    """The subscription and its log."""
    with transaction.atomic():
        _audit(actor, "webhook.delete", webhook)
        webhook.delete()


def ping(*, actor: Actor, webhook: Webhook) -> WebhookDelivery:
    """Something to deliver right now, for whoever sets a receiver up."""
    with transaction.atomic():
        _audit(actor, "webhook.ping", webhook)
        return WebhookDelivery.objects.create(
            uuid=uuid4(),
            webhook_id=webhook.pk,
            kind=NoticeKind.PING,
            data={"group_name": webhook.group.name},
            state=DeliveryState.WAITING,
        )


def redeliver(*, actor: Actor, delivery: WebhookDelivery) -> None:
    """Try it again from the first try, whatever became of it. Same id: receivers may know it."""
    with transaction.atomic():
        WebhookDelivery.objects.filter(pk=delivery.pk).update(
            state=DeliveryState.WAITING, tries=0, next_try_at=Now(), delivered_at=None
        )
        record(actor=actor, action="webhook.redeliver", target=str(delivery.uuid))


def _codes(kinds: Collection[NoticeKind]) -> list[int]:
    codes = sorted({kind.code for kind in kinds if kind is not NoticeKind.PING})
    if not codes:
        raise InvalidInput("events: name at least one event")
    return codes


def _check_url(url: str) -> None:
    if len(url) > MAX_URL_CHARS:
        raise InvalidInput(f"url: at most {MAX_URL_CHARS} characters")
    checked_url(url, trusted_hosts=settings.MITOSIS_WEBHOOK_HOSTS)


def _audit(actor: Actor, action: str, webhook: Webhook) -> None:
    detail = {"group": webhook.group.name, "url": webhook.url.partition("?")[0]}
    record(actor=actor, action=action, target=str(webhook.uuid), detail=detail)
