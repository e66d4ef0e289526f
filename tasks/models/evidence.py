"""What is known about a task beside its row: attempts, crashes, dependencies, events, counts.

`task_id` here is the internal id, the same in `active_tasks` and `archived_tasks`; no foreign key
can point at a row that moves between two tables. Nothing here is deleted when a task ends.
"""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from typing_extensions import override

from core.fields import EnumCodeField
from core.models import TimestampedModel
from mitosis_protocol.enums import DependencyCondition, Outcome, TaskPhase
from tasks.enums import AttemptEnd, EventKind


class TaskAttempt(models.Model):
    """One claim of one task. The id is what workers call `id`; it is never reused."""

    id = models.BigAutoField(primary_key=True)
    task_id = models.BigIntegerField()
    attempt = models.IntegerField()
    runner = models.ForeignKey(
        "runners.Runner",
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    session_epoch = models.BigIntegerField()
    assignment_id = models.BigIntegerField(null=True)
    claim_id = models.UUIDField()  # a repeated fetch finds what the lost answer carried
    claimed_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    ending = EnumCodeField(AttemptEnd, null=True)
    outcome = EnumCodeField(Outcome, null=True)
    exit_status = models.IntegerField(null=True)
    reason = models.TextField(null=True)  # noqa: DJ001 - SQL writes null
    op_id = models.UUIDField(
        null=True
    )  # of the report that closed it: the same again is a duplicate

    class Meta:
        db_table = "task_attempts"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["task_id", "attempt"], name="task_attempts_fence"),
            models.CheckConstraint(
                name="task_attempts_ended",
                condition=Q(ending__isnull=True, ended_at__isnull=True)
                | Q(ending__isnull=False, ended_at__isnull=False),
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["claim_id"], name="task_attempts_claim")]

    @override
    def __str__(self) -> str:
        return f"attempt {self.attempt} of task {self.task_id}"


class TaskExecutionFailure(TimestampedModel):
    """Crashes of one task on one runner: when that runner gives up, and evidence about the node."""

    id = models.BigAutoField(primary_key=True)
    task_id = models.BigIntegerField()
    task_uuid = models.UUIDField()
    suite_id = models.BigIntegerField(null=True)
    runner = models.ForeignKey(
        "runners.Runner",
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    failure_count = models.IntegerField(default=1, db_default=1)
    last_failure_at = models.DateTimeField(db_default=Now())
    error_messages = ArrayField(models.TextField(), default=list, db_default=[])
    worker_local_id = models.IntegerField(null=True)

    class Meta:
        db_table = "task_execution_failures"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["task_id", "runner"], name="task_execution_failures_unique"
            )
        ]
        indexes: ClassVar = [
            models.Index(fields=["task_uuid"], name="task_failures_uuid"),
            models.Index(fields=["runner", "last_failure_at"], name="task_failures_runner"),
            models.Index(
                fields=["suite_id"], name="task_failures_suite", condition=Q(suite_id__isnull=False)
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"task {self.task_id} on runner {self.runner_id}: {self.failure_count}"


class TaskDependency(models.Model):
    """An edge of the graph. Ids grow downstream, so a cycle cannot be stored."""

    id = models.BigAutoField(primary_key=True)
    task_id = models.BigIntegerField()
    upstream_id = models.BigIntegerField()
    condition = EnumCodeField(DependencyCondition, default=DependencyCondition.OK)

    class Meta:
        db_table = "task_dependencies"
        verbose_name_plural = "task dependencies"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["task_id", "upstream_id"], name="task_dependencies_edge"
            ),
            models.CheckConstraint(
                name="task_dependencies_acyclic", condition=Q(upstream_id__lt=F("task_id"))
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["upstream_id"], name="task_dependencies_upstream")
        ]

    @override
    def __str__(self) -> str:
        return f"task {self.task_id} after task {self.upstream_id}: {self.condition.value}"


class TaskEvent(models.Model):
    """What happened, in order. Made by sql/ddl; read by cursor (tasks.services.events).

    `seq` orders the events of one task without gaps. Across tasks the order is (`xid`, `id`), and
    a reader stops before the oldest transaction still running: ids alone commit out of order.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    kind = EnumCodeField(EventKind)
    group_id = models.BigIntegerField()
    suite_id = models.BigIntegerField(null=True)
    task_id = models.BigIntegerField(null=True)
    seq = models.IntegerField(null=True)
    attempt = models.IntegerField(null=True)
    runner_id = models.BigIntegerField(null=True)
    state = EnumCodeField(TaskPhase, null=True)
    outcome = EnumCodeField(Outcome, null=True)
    data = models.JSONField(null=True)

    class Meta:
        db_table = "task_events"
        managed = False

    @override
    def __str__(self) -> str:
        return f"{self.kind.value} of task {self.task_id}"


class SuiteCountDelta(models.Model):
    """Insert-only changes of a suite's counters; the sum per suite is the truth.

    One row per suite and statement, so no two commits wait for one hot row; folded by a sweep.
    """

    id = models.BigAutoField(primary_key=True)
    suite_id = models.BigIntegerField()
    total = models.BigIntegerField(default=0, db_default=0)  # ever submitted
    pending = models.BigIntegerField(default=0, db_default=0)  # in the active table
    succeeded = models.BigIntegerField(default=0, db_default=0)
    failed = models.BigIntegerField(default=0, db_default=0)
    cancelled = models.BigIntegerField(default=0, db_default=0)

    class Meta:
        db_table = "suite_count_deltas"
        indexes: ClassVar = [models.Index(fields=["suite_id"], name="suite_count_deltas_suite")]

    @override
    def __str__(self) -> str:
        return f"suite {self.suite_id}: {self.pending:+d} pending"
