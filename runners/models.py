"""The supertype of everything that leases tasks: managers, independent workers, direct workers.

One `runners` row and one narrow `runner_leases` row each, so the three protocols share one lease
and one fence. Columns and indexes only; written by runners.services and by the apps above.
"""

import uuid
from typing import ClassVar

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from typing_extensions import override

from accounts.constraints import known_codes
from core.fields import EnumCodeField, TagArrayField
from core.models import TimestampedModel
from mitosis_protocol.enums import ConnState, ConsentState, DesiredState, Role, RunnerKind


class Runner(TimestampedModel):
    """Identity, fences and matching attributes of one runner."""

    id = models.BigAutoField(primary_key=True)
    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)  # v4: clients check it
    kind = EnumCodeField(RunnerKind)
    owner = models.ForeignKey("accounts.User", on_delete=models.PROTECT, related_name="runners")
    token_generation = models.IntegerField(default=1, db_default=1)
    # +1 per accepted connection and per reap: fences everything the older session still sends.
    session_epoch = models.BigIntegerField(default=0, db_default=0)
    process_id = models.UUIDField(null=True, blank=True)  # new at every start of the remote process
    conn_state = EnumCodeField(ConnState, default=ConnState.DISCONNECTED)
    desired_state = EnumCodeField(DesiredState, default=DesiredState.ACTIVE)
    revoked_at = models.DateTimeField(null=True, blank=True)
    tags = TagArrayField()
    labels = TagArrayField()

    class Meta:
        db_table = "runners"
        constraints: ClassVar = [
            known_codes("runners_kind_known", "kind", RunnerKind),
            known_codes("runners_conn_state_known", "conn_state", ConnState),
            known_codes("runners_desired_state_known", "desired_state", DesiredState),
        ]
        indexes: ClassVar = [
            GinIndex(fields=["tags"], name="runners_tags_gin"),
            GinIndex(fields=["labels"], name="runners_labels_gin"),
            models.Index(fields=["kind", "id"], name="runners_kind_id"),
        ]

    @override
    def __str__(self) -> str:
        return str(self.uuid)


class RunnerLease(models.Model):
    """How long a runner counts as alive. Fillfactor 50, no index on `expires_at`: HOT updates."""

    runner = models.OneToOneField(
        Runner, on_delete=models.CASCADE, primary_key=True, related_name="lease"
    )
    session_epoch = models.BigIntegerField()
    expires_at = models.DateTimeField()

    class Meta:
        db_table = "runner_leases"

    @override
    def __str__(self) -> str:
        return f"runner {self.runner_id} until {self.expires_at:%Y-%m-%dT%H:%M:%SZ}"


class GroupRunner(TimestampedModel):
    """The role a group has on a runner. Counts only once the group's side accepted it."""

    id = models.BigAutoField(primary_key=True)
    group = models.ForeignKey(
        "accounts.Group", on_delete=models.PROTECT, related_name="runner_roles"
    )
    runner = models.ForeignKey(Runner, on_delete=models.CASCADE, related_name="group_roles")
    role = EnumCodeField(Role)
    consent = EnumCodeField(ConsentState, default=ConsentState.PENDING)
    decided_by = models.ForeignKey(
        "accounts.User", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "group_runners"
        constraints: ClassVar = [
            known_codes("group_runners_role_known", "role", Role),
            known_codes("group_runners_consent_known", "consent", ConsentState),
            models.UniqueConstraint(fields=["group", "runner"], name="group_runners_unique"),
        ]

    @override
    def __str__(self) -> str:
        return f"group {self.group_id} on runner {self.runner_id}: {self.role.value}"


class IngestPresence(models.Model):
    """One row: since when, and when last, some coordinator process could take heartbeats."""

    id = models.SmallIntegerField(primary_key=True)
    up_since = models.DateTimeField()
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "ingest_presence"
        verbose_name_plural = "ingest presence"
        constraints: ClassVar = [
            models.CheckConstraint(name="ingest_presence_single", condition=Q(id=1)),
        ]

    @override
    def __str__(self) -> str:
        return f"since {self.up_since:%Y-%m-%dT%H:%M:%SZ}"
