"""The campaign: tasks that share an environment, a worker plan and a life cycle.

Columns, constraints and indexes only; `state` is written by suites.services.lifecycle alone, the
counts live in insert-only rows of the task tables (ADR 0012). Foreign keys are made in sql/ddl:
immediate and RESTRICT, which the ORM cannot say.
"""

import uuid
from typing import ClassVar

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from typing_extensions import override

from accounts.constraints import known_codes
from core.fields import EnumCodeField, TagArrayField
from core.models import TimestampedModel
from mitosis_protocol.enums import PartitionPolicy, SuiteState
from mitosis_protocol.limits import MAX_LABELS
from suites.querysets import SuiteQuerySet

LIVE_CODES = [SuiteState.OPEN.code, SuiteState.CLOSED.code]


class TaskSuite(TimestampedModel):
    """What was asked for, and where the suite stands."""

    id = models.BigAutoField(primary_key=True)
    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.TextField(null=True, blank=True)  # noqa: DJ001 - the API shows null
    description = models.TextField(null=True, blank=True)  # noqa: DJ001 - the API shows null
    group = models.ForeignKey(
        "accounts.Group",
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    creator = models.ForeignKey(
        "accounts.User", on_delete=models.PROTECT, related_name="+", db_constraint=False
    )
    tags = TagArrayField()
    labels = TagArrayField(max_items=MAX_LABELS)
    priority = models.IntegerField(default=0, db_default=0)

    worker_schedule = models.JSONField()
    env_preparation = models.JSONField(null=True, blank=True)
    env_cleanup = models.JSONField(null=True, blank=True)
    limits = models.JSONField(null=True, blank=True)
    retry = models.JSONField(null=True, blank=True)  # defaults of its tasks
    on_partition = EnumCodeField(PartitionPolicy, default=PartitionPolicy.KEEP)
    auto_match = models.BooleanField(default=True, db_default=True)
    settle_seconds = models.IntegerField()
    linger_seconds = models.IntegerField()
    max_running = models.IntegerField(null=True, blank=True)
    max_failures = models.IntegerField(null=True, blank=True)
    failure_rate = models.FloatField(null=True, blank=True)

    state = EnumCodeField(SuiteState, default=SuiteState.OPEN)
    generation = models.IntegerField(default=1, db_default=1)  # +1 each time it reopens
    # Accepted submits. A suite that never had one does not complete, and only it can be deleted.
    submit_count = models.BigIntegerField(default=0, db_default=0)
    last_task_submitted_at = models.DateTimeField(null=True, blank=True)
    # Made, or reopened by hand: an explicit reopening counts as activity until the auto-close.
    opened_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True, blank=True)
    completed_at = models.DateTimeField(null=True, blank=True)
    cancelled_at = models.DateTimeField(null=True, blank=True)
    cancel_reason = models.TextField(null=True, blank=True)  # noqa: DJ001 - null: not cancelled

    # Orthogonal to the state: no task is handed out while either is set.
    paused_at = models.DateTimeField(null=True, blank=True)
    blocked_at = models.DateTimeField(null=True, blank=True)
    blocked_reason = models.TextField(null=True, blank=True)  # noqa: DJ001 - null: not blocked
    # Ends counted when the suite was last unblocked: what happened before is forgiven.
    forgiven_failed = models.BigIntegerField(default=0, db_default=0)
    forgiven_succeeded = models.BigIntegerField(default=0, db_default=0)

    objects = SuiteQuerySet.as_manager()

    class Meta:
        db_table = "task_suites"
        constraints: ClassVar = [
            known_codes("task_suites_state_known", "state", SuiteState),
            known_codes("task_suites_on_partition_known", "on_partition", PartitionPolicy),
            models.CheckConstraint(
                name="task_suites_numbers",
                condition=Q(settle_seconds__gte=0, linger_seconds__gte=0, submit_count__gte=0)
                & (Q(max_running__isnull=True) | Q(max_running__gte=1))
                & (Q(max_failures__isnull=True) | Q(max_failures__gte=1))
                & (Q(failure_rate__isnull=True) | Q(failure_rate__gt=0, failure_rate__lte=1)),
            ),
            models.CheckConstraint(
                name="task_suites_complete_since",
                condition=Q(state=SuiteState.COMPLETE.code, completed_at__isnull=False)
                | ~Q(state=SuiteState.COMPLETE.code),
            ),
            models.CheckConstraint(
                name="task_suites_complete_had_tasks",
                condition=~Q(state=SuiteState.COMPLETE.code) | Q(submit_count__gt=0),
            ),
            models.CheckConstraint(
                name="task_suites_blocked_says_why",
                condition=Q(blocked_at__isnull=True, blocked_reason__isnull=True)
                | Q(blocked_at__isnull=False, blocked_reason__isnull=False),
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["group", "-id"], name="task_suites_group"),
            GinIndex(fields=["tags"], name="task_suites_tags_gin"),
            GinIndex(fields=["labels"], name="task_suites_labels_gin"),
            # The scheduler and the sweeps look at suites that may still have work, no others.
            models.Index(
                F("priority").desc(),
                F("id"),
                name="task_suites_live",
                condition=Q(state__in=LIVE_CODES),
            ),
            models.Index(
                fields=["last_task_submitted_at"],
                name="task_suites_auto_close",
                condition=Q(state=SuiteState.OPEN.code),
            ),
        ]

    @override
    def __str__(self) -> str:
        return self.name or str(self.uuid)
