"""Webhooks: who wants to be told of what, and the log of what was told.

A delivery is written by a trigger in the transaction of the change it speaks of (sql/ddl), so it
exists exactly when the change does. Columns, constraints and indexes only.
"""

import uuid
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from typing_extensions import override

from accounts.constraints import known_codes
from core.fields import EnumCodeField
from core.models import TimestampedModel
from mitosis_protocol.enums import DeliveryState, NoticeKind

MAX_URL_CHARS = 500


class Webhook(TimestampedModel):
    """A subscription of one group. Its secret is derived, not stored (notifications.signing)."""

    id = models.BigAutoField(primary_key=True)
    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    group = models.ForeignKey("accounts.Group", on_delete=models.CASCADE, related_name="webhooks")
    url = models.CharField(max_length=MAX_URL_CHARS)
    kinds = ArrayField(models.SmallIntegerField())  # codes of NoticeKind
    is_enabled = models.BooleanField(default=True, db_default=True)
    secret_version = models.IntegerField(default=1, db_default=1)  # +1 makes another secret
    created_by = models.ForeignKey("accounts.User", on_delete=models.PROTECT, related_name="+")

    class Meta:
        db_table = "webhooks"

    @override
    def __str__(self) -> str:
        return str(self.uuid)


class WebhookDelivery(models.Model):
    """One thing told to one webhook. The uuid is what the receiver knows it by."""

    id = models.BigAutoField(primary_key=True)
    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    kind = EnumCodeField(NoticeKind)
    subject = models.UUIDField(null=True)  # of the suite or manager it is about
    data = models.JSONField()
    created_at = models.DateTimeField(db_default=Now())
    state = EnumCodeField(DeliveryState, default=DeliveryState.WAITING)
    # Tries made, the one under way included: counted before the request leaves.
    tries = models.IntegerField(default=0, db_default=0)
    next_try_at = models.DateTimeField(db_default=Now())
    last_try_at = models.DateTimeField(null=True)
    last_status = models.IntegerField(null=True)  # of HTTP; null when there was no answer
    last_error = models.TextField(default="", db_default="", blank=True)
    delivered_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "webhook_deliveries"
        verbose_name_plural = "webhook deliveries"
        constraints: ClassVar = [
            known_codes("webhook_deliveries_kind_known", "kind", NoticeKind),
            known_codes("webhook_deliveries_state_known", "state", DeliveryState),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["next_try_at"],
                name="webhook_deliveries_due",
                condition=Q(state=DeliveryState.WAITING.code),
            ),
            models.Index(fields=["webhook", "-id"], name="webhook_deliveries_log"),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.kind.value} {self.uuid}"


class FailureMinute(models.Model):
    """Failed tasks of a suite in one minute, counted from the event log; for bursts."""

    id = models.BigAutoField(primary_key=True)
    suite_id = models.BigIntegerField()
    minute = models.DateTimeField()
    failed = models.IntegerField()

    class Meta:
        db_table = "failure_minutes"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["suite_id", "minute"], name="failure_minutes_unique")
        ]
        indexes: ClassVar = [models.Index(fields=["minute"], name="failure_minutes_minute")]

    @override
    def __str__(self) -> str:
        return f"suite {self.suite_id}: {self.failed} at {self.minute:%H:%M}"


class LogPosition(models.Model):
    """Up to where a reader of the event log has come. `xid` is PostgreSQL's, as text."""

    reader = models.TextField(primary_key=True)
    xid = models.TextField()
    event_id = models.BigIntegerField()

    class Meta:
        db_table = "log_positions"

    @override
    def __str__(self) -> str:
        return f"{self.reader}: {self.xid}-{self.event_id}"


class JobTurn(models.Model):
    """Whose turn it is at a job that talks to strangers; over by itself when its holder dies."""

    name = models.TextField(primary_key=True)
    until = models.DateTimeField()

    class Meta:
        db_table = "job_turns"

    @override
    def __str__(self) -> str:
        return f"{self.name} until {self.until:%Y-%m-%dT%H:%M:%SZ}"
