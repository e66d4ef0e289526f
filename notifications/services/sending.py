"""Sends what waits, several at once, within a budget of time. Called by notifications.periodic.

A try is counted and the next one planned before the request leaves (claim_deliveries.sql), and no
transaction is open while a stranger answers. Whoever is killed between the request and its note
leaves a delivery that is sent again: at least once, the receiver knows a repetition by its id.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection

from core import clock
from core.faults import fault
from core.pg import load_sql
from mitosis_protocol.enums import DeliveryState, NoticeKind
from notifications.models import WebhookDelivery
from notifications.posting import Answer, post
from notifications.services.turns import turn
from notifications.signing import secret_of, signature_of
from notifications.targets import TargetRefused, parse_target

log = structlog.get_logger(__name__)

_CLAIM: Final = load_sql("notifications", "claim_deliveries")
_MARK: Final = load_sql("notifications", "mark")

BATCH: Final = 16  # under way at once
PER_WEBHOOK: Final = 4  # of a batch: one slow receiver may not take all places
BUDGET_S: Final = 10.0  # a run begins no batch after this; what is left waits for the next run
TURN_S: Final = 60.0  # the budget, a last batch, and a slow name server
USER_AGENT: Final = "Mitosis-Webhooks/1"


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery in our hands, and where it goes."""

    id: int
    uuid: UUID
    kind: NoticeKind
    data: str
    created_at: datetime
    tries: int
    webhook: UUID
    url: str
    secret_version: int
    is_enabled: bool


def send_due(*, budget_s: float = BUDGET_S, now: Callable[[], float] = time.monotonic) -> int:
    """Send what is due until nothing is, or the budget is gone; answers how many arrived.

    Somebody else is at it: nothing is done.
    """
    delivered = 0
    with turn("webhooks", limit_s=TURN_S) as is_ours:
        ends_at = now() + budget_s if is_ours else now()
        while now() < ends_at and (claimed := _claim()):
            delivered += _send_batch(claimed)
    return delivered


def forget_old(*, keep: timedelta) -> int:
    """Drop deliveries that are over and old; what still waits stays."""
    old = WebhookDelivery.objects.exclude(state=DeliveryState.WAITING).filter(
        created_at__lt=clock.now() - keep
    )
    deleted, _ = old.delete()
    return deleted


def body_of(one: Claimed) -> bytes:
    """What the receiver reads. The same for every try: `timestamp` is when it happened."""
    return json.dumps(
        {
            "id": str(one.uuid),
            "type": one.kind.value,
            "timestamp": one.created_at.isoformat(),
            "data": json.loads(one.data),
        },
        separators=(",", ":"),
    ).encode()


def headers_of(one: Claimed, body: bytes, *, sent_at: int) -> dict[str, str]:
    """Id, time and signature; a retry is signed anew, so that its time is fresh."""
    secret = secret_of(key=settings.SECRET_KEY, webhook=one.webhook, version=one.secret_version)
    message_id = str(one.uuid)
    return {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        "webhook-id": message_id,
        "webhook-timestamp": str(sent_at),
        "webhook-signature": signature_of(
            secret=secret, message_id=message_id, timestamp=sent_at, body=body
        ),
    }


def _send_batch(claimed: Sequence[Claimed]) -> int:
    # Threads only talk to receivers; the database stays with this one.
    with ThreadPoolExecutor(max_workers=len(claimed)) as threads:
        answers = list(threads.map(_try, claimed))
    fault("webhooks.sent_before_mark")
    for one, answer in zip(claimed, answers, strict=True):
        _mark(one, answer)
    return sum(answer.is_delivered for answer in answers)


def _claim() -> list[Claimed]:
    policy = settings.MITOSIS
    with connection.cursor() as cursor:
        cursor.execute(
            _CLAIM,
            {
                "batch": BATCH,
                "per_webhook": PER_WEBHOOK,
                "backoff_s": policy.webhook_backoff_s,
                "backoff_max_s": policy.webhook_backoff_max_s,
            },
        )
        return [
            Claimed(id_, uuid, NoticeKind.from_code(kind), *rest)
            for id_, uuid, kind, *rest in cursor.fetchall()
        ]


def _try(one: Claimed) -> Answer:
    if not one.is_enabled and one.kind is not NoticeKind.PING:
        return Answer(None, "the webhook is switched off")
    try:
        target = parse_target(one.url, trusted_hosts=settings.MITOSIS_WEBHOOK_HOSTS)
    except TargetRefused as refusal:  # the operator's list has changed since
        return Answer(None, str(refusal))
    body = body_of(one)
    headers = headers_of(one, body, sent_at=int(clock.now().timestamp()))
    return post(target, body=body, headers=headers, limit_s=settings.MITOSIS.webhook_answer_s)


def _mark(one: Claimed, answer: Answer) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            _MARK,
            {
                "id": one.id,
                "tries": one.tries,
                "max_tries": settings.MITOSIS.webhook_tries,
                "is_delivered": answer.is_delivered,
                "status": answer.status,
                "error": answer.error,
            },
        )
    if not answer.is_delivered:
        log.warning(
            "webhook.not_delivered",
            delivery=str(one.uuid),
            webhook=str(one.webhook),
            tries=one.tries,
            status=answer.status,
            reason=answer.error,
        )
