"""Node managers: what only they have beside their runner, whom they may serve, whom they serve now.

Columns, constraints and indexes only. `suite_id` and `manager_id` are keys of task_suites and
runners; foreign keys are made in sql/ddl (immediate, RESTRICT). Roles of groups on managers are
runners.GroupRunner.
"""

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from typing_extensions import override

from accounts.constraints import known_codes
from core.fields import EnumCodeField
from core.models import TimestampedModel
from managers.enums import PreparationTrouble, ReleaseReason
from mitosis_protocol.enums import AssignmentState, ManagerState, SelectionType


class NodeManager(models.Model):
    """A node manager. Its uuid, owner, tags, fences and desired state are the runner's."""

    runner = models.OneToOneField(
        "runners.Runner", on_delete=models.PROTECT, primary_key=True, related_name="node_manager"
    )
    state = EnumCodeField(ManagerState, default=ManagerState.IDLE)
    last_heartbeat = models.DateTimeField(db_default=Now())
    metrics = models.JSONField(null=True, blank=True)  # the newest it sent
    sampled_at = models.DateTimeField(null=True, blank=True)  # when they last went into the history
    config_version = models.IntegerField(default=0, db_default=0)  # the newest it has applied

    # Why the runner's desired state is what it is.
    wish_reason = models.TextField(default="", db_default="", blank=True)
    wish_at = models.DateTimeField(null=True, blank=True)
    is_forced = models.BooleanField(default=False, db_default=False)  # shutdown without waiting
    # Quarantine: when it may be tried again, how often it was, and from when evidence counts.
    probe_after = models.DateTimeField(null=True, blank=True)
    probation_until = models.DateTimeField(null=True, blank=True)
    quarantine_count = models.IntegerField(default=0, db_default=0)
    evidence_since = models.DateTimeField(db_default=Now())

    # Refresh tokens are kept as SHA-256; the one before the newest works a little longer, and the
    # name in front of all of them tells one that was spent from one that never was.
    refresh_family_hash = models.CharField(max_length=64, default="", db_default="", blank=True)
    refresh_hash = models.CharField(max_length=64, default="", db_default="", blank=True)
    refresh_previous_hash = models.CharField(max_length=64, default="", db_default="", blank=True)
    refresh_rotated_at = models.DateTimeField(null=True, blank=True)
    refresh_expires_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "node_managers"
        constraints: ClassVar = [known_codes("node_managers_state_known", "state", ManagerState)]

    @override
    def __str__(self) -> str:
        return f"manager {self.runner_id}"


class SuiteManager(models.Model):
    """Eligibility: this manager may be given this suite. Reclaiming never touches it."""

    id = models.BigAutoField(primary_key=True)
    suite = models.ForeignKey(
        "suites.TaskSuite",
        on_delete=models.CASCADE,
        related_name="eligible_managers",
        db_constraint=False,
        db_index=False,
        db_column="task_suite_id",
    )
    manager = models.ForeignKey(
        NodeManager, on_delete=models.CASCADE, related_name="eligible_suites", db_constraint=False
    )
    selection_type = EnumCodeField(SelectionType)
    matched_tags = ArrayField(models.TextField(), default=list, db_default=[])
    added_at = models.DateTimeField(db_default=Now())
    added_by_user = models.ForeignKey(
        "accounts.User", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    # Taken off by hand: automatic matching does not put it back, a refresh does.
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "task_suite_managers"
        constraints: ClassVar = [
            known_codes("task_suite_managers_selection_known", "selection_type", SelectionType),
            models.UniqueConstraint(fields=["suite", "manager"], name="task_suite_managers_unique"),
        ]
        indexes: ClassVar = [
            # The scheduler applies the rule by itself and reads only what people decided.
            models.Index(
                fields=["suite"],
                name="task_suite_managers_by_hand",
                condition=Q(selection_type=SelectionType.USER_SPECIFIED.code)
                | Q(removed_at__isnull=False),
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"suite {self.suite_id} on manager {self.manager_id}"


class SuiteAssignment(models.Model):
    """The engagement: one manager works for one suite. Its id fences suite-level messages."""

    id = models.BigAutoField(primary_key=True)
    suite = models.ForeignKey(
        "suites.TaskSuite",
        on_delete=models.PROTECT,
        related_name="assignments",
        db_constraint=False,
    )
    manager = models.ForeignKey(
        NodeManager, on_delete=models.PROTECT, related_name="assignments", db_constraint=False
    )
    state = EnumCodeField(AssignmentState, default=AssignmentState.ASSIGNED)
    created_at = models.DateTimeField(db_default=Now())
    # Affinity, not liveness: until then the host stays with its suite while there is work.
    lease_expires_at = models.DateTimeField()
    renewals = models.IntegerField(default=0, db_default=0)
    idle_since = models.DateTimeField(null=True, blank=True)
    prepared_at = models.DateTimeField(null=True, blank=True)
    trouble = EnumCodeField(PreparationTrouble, null=True, blank=True)
    release_reason = EnumCodeField(ReleaseReason, null=True, blank=True)
    release_asked_at = models.DateTimeField(null=True, blank=True)
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "suite_assignments"
        constraints: ClassVar = [
            known_codes("suite_assignments_state_known", "state", AssignmentState),
            # The last word on "one suite at a time", whoever decides and whatever raced.
            models.UniqueConstraint(
                fields=["manager"],
                name="suite_assignments_one_live",
                condition=Q(released_at__isnull=True),
            ),
            models.CheckConstraint(
                name="suite_assignments_released",
                condition=Q(
                    state=AssignmentState.RELEASED.code,
                    released_at__isnull=False,
                    release_reason__isnull=False,
                )
                | (~Q(state=AssignmentState.RELEASED.code) & Q(released_at__isnull=True)),
            ),
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["suite"],
                name="suite_assignments_live_suite",
                condition=Q(released_at__isnull=True),
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"suite {self.suite_id} on manager {self.manager_id}: {self.state.value}"


class PreparationFailure(models.Model):
    """A host on which a suite could not be prepared; not tried there again until forgiven."""

    id = models.BigAutoField(primary_key=True)
    suite = models.ForeignKey(
        "suites.TaskSuite", on_delete=models.PROTECT, related_name="+", db_constraint=False
    )
    manager = models.ForeignKey(
        NodeManager, on_delete=models.PROTECT, related_name="+", db_constraint=False
    )
    assignment_id = models.BigIntegerField()
    trouble = EnumCodeField(PreparationTrouble)
    exit_code = models.IntegerField(null=True, blank=True)
    message = models.TextField(default="", blank=True)
    failed_at = models.DateTimeField(db_default=Now())
    forgiven_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "preparation_failures"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["suite", "manager"],
                name="preparation_failures_open",
                condition=Q(forgiven_at__isnull=True),
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"suite {self.suite_id} on manager {self.manager_id}: {self.trouble.value}"


class SchedulerConfig(TimestampedModel):
    """One row, versioned: the numbers an operator may change while the fleet runs."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    version = models.IntegerField(default=1, db_default=1)
    suites_enabled = models.BooleanField(default=True, db_default=True)  # the roll-out switch
    lease_duration_s = models.IntegerField(default=3600, db_default=3600)
    idle_threshold_s = models.IntegerField(default=300, db_default=300)
    heartbeat_s = models.IntegerField(default=30, db_default=30)
    # Distinct tasks that failed on a host and succeeded elsewhere, within the window.
    quarantine_failures = models.IntegerField(default=3, db_default=3)
    quarantine_window_s = models.IntegerField(default=600, db_default=600)
    probe_after_s = models.IntegerField(default=600, db_default=600)  # doubled each time

    class Meta:
        db_table = "manager_config"
        verbose_name = "scheduler configuration"
        constraints: ClassVar = [
            models.CheckConstraint(name="manager_config_one_row", condition=Q(id=1)),
            models.CheckConstraint(
                name="manager_config_numbers",
                condition=Q(
                    lease_duration_s__gte=1,
                    idle_threshold_s__gte=0,
                    heartbeat_s__gte=1,
                    quarantine_failures__gte=1,
                    quarantine_window_s__gte=1,
                    probe_after_s__gte=1,
                ),
            ),
        ]

    @override
    def __str__(self) -> str:
        return f"version {self.version}"


class GroupShare(models.Model):
    """How much of the fleet a group gets when several want it; 1 without a row."""

    group = models.OneToOneField(
        "accounts.Group", on_delete=models.CASCADE, primary_key=True, related_name="share"
    )
    weight = models.FloatField(default=1)

    class Meta:
        db_table = "group_shares"
        constraints: ClassVar = [
            models.CheckConstraint(
                name="group_shares_weight", condition=Q(weight__gt=0, weight__lte=1000)
            )
        ]

    @override
    def __str__(self) -> str:
        return f"group {self.group_id}: {self.weight:g}"


class SweepRun(models.Model):
    """When a sweep ran last, whoever ran it. Tells a silent beat."""

    name = models.TextField(primary_key=True)
    last_run_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "sweep_runs"

    @override
    def __str__(self) -> str:
        return self.name
