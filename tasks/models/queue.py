"""The two tables a task lives in: `active_tasks` while it must still end, `archived_tasks` after.

Columns, constraints and indexes only; rows are written by the statements in tasks/sql alone.
Foreign keys are made in sql/ddl: immediate and RESTRICT, which the ORM cannot say. Where the
writing statement proves a key itself, its parent is guarded instead (ADR 0019).
No index mentions `state`, so that Start and Finish stay heap-only updates.
"""

import uuid
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex, GinIndex
from django.db import models
from django.db.models import ExpressionWrapper, F, Q
from django.db.models.functions import Coalesce, Now
from typing_extensions import override

from core.fields import EnumCodeField, TagArrayField
from core.models import TimestampedModel
from mitosis_protocol.enums import Outcome, TaskPhase, TaskResultMessage, TaskState
from mitosis_protocol.limits import MAX_ATTEMPTS_DEFAULT, MAX_FAILURES_DEFAULT, MAX_LABELS

# What counts as a failure on pages: everything that did not succeed and was not cancelled.
FAILED_CODES = [
    Outcome.FAILED.code,
    Outcome.TIMEOUT.code,
    Outcome.OOM.code,
    Outcome.UPSTREAM_FAILED.code,
]


class TaskColumns(TimestampedModel):
    """What a task keeps when it moves from the active table to the archive."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)  # v4: clients check it
    group = models.ForeignKey(
        "accounts.Group",
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    creator = models.ForeignKey(
        "accounts.User",
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    number = models.BigIntegerField()  # `task_id` on the wire: counts from 1 within the group
    suite_id = models.BigIntegerField(null=True)
    assignment_id = models.BigIntegerField(null=True)  # of the current attempt
    priority = models.IntegerField(default=0, db_default=0)
    tags = TagArrayField()
    labels = TagArrayField(max_items=MAX_LABELS)
    timeout_s = models.IntegerField()
    spec = models.JSONField()

    attempt = models.IntegerField(default=0, db_default=0)  # the fence: +1 per claim, never reset
    attempt_id = models.BigIntegerField(null=True)  # task_attempts.id, `id` on every worker wire
    failures = models.IntegerField(default=0, db_default=0)  # charged when the command may have run
    max_failures = models.IntegerField(
        default=MAX_FAILURES_DEFAULT, db_default=MAX_FAILURES_DEFAULT
    )
    max_attempts = models.IntegerField(
        default=MAX_ATTEMPTS_DEFAULT, db_default=MAX_ATTEMPTS_DEFAULT
    )
    backoff_s = models.FloatField(null=True)  # null: the policy's
    backoff_max_s = models.FloatField(null=True)
    retry_on = models.JSONField(
        null=True
    )  # {exit_codes, signals, oom, timeout}; null: crashes only

    concurrency_key = models.TextField(null=True)  # noqa: DJ001 - null: no key
    affinity = models.JSONField(null=True)
    resource_refs = models.JSONField(null=True)
    middleware = models.JSONField(null=True)
    limits = models.JSONField(null=True)
    pinned_runner_id = models.BigIntegerField(null=True)  # the only runner that may claim it

    upstream_task_id = models.BigIntegerField(null=True)
    upstream_task_uuid = models.UUIDField(null=True)
    downstream_task_uuid = models.UUIDField(null=True)

    started_at = models.DateTimeField(null=True)  # set once the command may have started
    event_seq = models.IntegerField(default=1, db_default=1)  # of its newest row in task_events

    class Meta:
        abstract = True

    @override
    def __str__(self) -> str:
        return str(self.uuid)


class ActiveTask(TaskColumns):
    """A task that still has to end."""

    id = models.BigAutoField(primary_key=True)
    state = EnumCodeField(TaskPhase)
    # Stands for state = Ready in index conditions: it does not change between claim and commit.
    is_ready = models.GeneratedField(
        expression=ExpressionWrapper(
            Q(state=TaskPhase.READY.code), output_field=models.BooleanField()
        ),
        output_field=models.BooleanField(),
        db_persist=True,
    )
    # Who may claim it: a group's runners, or (negative) the managers of a suite.
    queue_id = models.GeneratedField(
        expression=Coalesce(-F("suite_id"), F("group_id")),
        output_field=models.BigIntegerField(),
        db_persist=True,
    )
    # Tasks one runner can or cannot all take: same tags, same pin. Lets a claim skip whole crowds.
    lane = models.BigIntegerField(default=0, db_default=0)
    runner_id = models.BigIntegerField(null=True)  # who holds the lease
    is_exclusive = models.BooleanField(default=False, db_default=False)  # its runner may hold one
    lost_runner_id = models.BigIntegerField(null=True)  # who may still report a lost attempt
    lost_charge = models.SmallIntegerField(default=0, db_default=0)  # given back on adoption
    excluded_runner_ids = ArrayField(models.BigIntegerField(), default=list, db_default=[])
    waiting_on = models.IntegerField(default=0, db_default=0)  # upstream tasks that have not ended
    dependents = models.IntegerField(default=0, db_default=0)  # edges that point at this task
    not_before = models.DateTimeField(db_default=Now())
    cancel_requested_at = models.DateTimeField(null=True)
    last_op_id = models.UUIDField(null=True)  # of a report that charged but did not end the attempt
    finish_cancelled = models.BooleanField(default=False, db_default=False)  # reported with Cancel

    class Meta:
        db_table = "active_tasks"
        constraints: ClassVar = [
            models.CheckConstraint(
                name="active_tasks_state",
                condition=Q(state__in=[phase.code for phase in TaskPhase]),
            ),
            models.CheckConstraint(
                name="active_tasks_held_has_runner",
                condition=Q(state__lte=1, runner_id__isnull=True)
                | Q(state__gte=2, runner_id__isnull=False, attempt_id__isnull=False),
            ),
            models.CheckConstraint(
                name="active_tasks_pending_waits",
                condition=Q(state=0, waiting_on__gt=0) | Q(state__gt=0, waiting_on=0),
            ),
            models.CheckConstraint(
                name="active_tasks_lost_is_ready",
                condition=Q(lost_runner_id__isnull=True) | Q(state=1),
            ),
            models.CheckConstraint(
                name="active_tasks_running_started",
                condition=~Q(state=3) | Q(started_at__isnull=False),
            ),
            models.CheckConstraint(
                name="active_tasks_budgets",
                condition=Q(
                    failures__gte=0,
                    max_failures__gte=1,
                    max_attempts__gte=1,
                    attempt__gte=0,
                    attempt__lte=F("max_attempts"),
                    dependents__gte=0,
                    timeout_s__gte=0,
                ),
            ),
            # The last word on "a busy worker is handed the same attempt again".
            models.UniqueConstraint(
                name="active_tasks_one_per_exclusive_runner",
                fields=["runner_id"],
                condition=Q(is_exclusive=True, runner_id__isnull=False),
            ),
            models.UniqueConstraint(
                name="active_tasks_one_per_concurrency_key",
                fields=["group", "concurrency_key"],
                condition=Q(concurrency_key__isnull=False, runner_id__isnull=False),
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                F("queue_id"),
                F("lane"),
                F("priority").desc(),
                F("id"),
                name="active_tasks_claim",
                condition=Q(is_ready=True),
            ),
            models.Index(
                fields=["runner_id"],
                name="active_tasks_runner",
                condition=Q(runner_id__isnull=False),
            ),
            models.Index(
                fields=["pinned_runner_id"],
                name="active_tasks_pinned",
                condition=Q(is_ready=True, pinned_runner_id__isnull=False),
            ),
            models.Index(fields=["group", "id"], name="active_tasks_group"),
            models.Index(
                fields=["suite_id", "id"],
                name="active_tasks_suite",
                condition=Q(suite_id__isnull=False),
            ),
            GinIndex(fields=["tags"], name="active_tasks_tags_gin"),
            GinIndex(fields=["labels"], name="active_tasks_labels_gin"),
        ]


class ArchivedTask(TaskColumns):
    """A task that ended. Its primary key is the active row's: a second end is impossible."""

    id = models.BigIntegerField(primary_key=True)
    state = EnumCodeField(TaskState)  # Finished or Cancelled, as existing clients see it
    outcome = EnumCodeField(Outcome)
    exit_status = models.IntegerField(null=True)  # raw wait status
    msg = EnumCodeField(TaskResultMessage, null=True)
    # Why the coordinator ended it, for people.
    reason = models.TextField(null=True)  # noqa: DJ001 - SQL writes null
    result = models.JSONField(null=True)  # what a runner adds: artifacts[], peaks
    runner_id = models.BigIntegerField(null=True)
    reporter_uuid = models.UUIDField(null=True)
    op_id = models.UUIDField(null=True)
    ended_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "archived_tasks"
        constraints: ClassVar = [
            models.CheckConstraint(
                name="archived_tasks_state",
                condition=Q(state__in=[TaskState.FINISHED.code, TaskState.CANCELLED.code]),
            ),
            models.CheckConstraint(
                name="archived_tasks_outcome",
                condition=Q(outcome__in=[outcome.code for outcome in Outcome]),
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["group", "id"], name="archived_tasks_group"),
            models.Index(
                fields=["suite_id", "id"],
                name="archived_tasks_suite",
                condition=Q(suite_id__isnull=False),
            ),
            # Failures by their end, of all, a group and a suite: small, since most tasks succeed.
            models.Index(
                F("ended_at").desc(),
                F("id").desc(),
                name="archived_tasks_failed",
                condition=Q(outcome__in=FAILED_CODES),
            ),
            models.Index(
                F("group"),
                F("ended_at").desc(),
                F("id").desc(),
                name="archived_tasks_failed_group",
                condition=Q(outcome__in=FAILED_CODES),
            ),
            models.Index(
                F("suite_id"),
                F("ended_at").desc(),
                F("id").desc(),
                name="archived_tasks_failed_suite",
                condition=Q(outcome__in=FAILED_CODES, suite_id__isnull=False),
            ),
            # Rows come in the order of their end: a few bytes per range of pages find an hour.
            BrinIndex(
                fields=["ended_at"],
                name="archived_tasks_ended",
                pages_per_range=32,
                autosummarize=True,
            ),
            GinIndex(fields=["tags"], name="archived_tasks_tags_gin"),
            GinIndex(fields=["labels"], name="archived_tasks_labels_gin"),
        ]
