"""Node managers, eligibility, engagements, scheduler configuration."""

import django.contrib.postgres.fields
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import core.fields
import managers.enums
import mitosis_protocol.enums
from core.pg import load_sql


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_initial"),
        ("runners", "0001_initial"),
        ("suites", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="SweepRun",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                (
                    "last_run_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "db_table": "sweep_runs",
            },
        ),
        migrations.CreateModel(
            name="GroupShare",
            fields=[
                (
                    "group",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="share",
                        serialize=False,
                        to="accounts.group",
                    ),
                ),
                ("weight", models.FloatField(default=1)),
            ],
            options={
                "db_table": "group_shares",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("weight__gt", 0), ("weight__lte", 1000)),
                        name="group_shares_weight",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="NodeManager",
            fields=[
                (
                    "runner",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="node_manager",
                        serialize=False,
                        to="runners.runner",
                    ),
                ),
                (
                    "state",
                    core.fields.EnumCodeField(mitosis_protocol.enums.ManagerState, default=0),
                ),
                (
                    "last_heartbeat",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("metrics", models.JSONField(blank=True, null=True)),
                ("config_version", models.IntegerField(db_default=0, default=0)),
                ("wish_reason", models.TextField(blank=True, db_default="", default="")),
                ("wish_at", models.DateTimeField(blank=True, null=True)),
                ("is_forced", models.BooleanField(db_default=False, default=False)),
                ("probe_after", models.DateTimeField(blank=True, null=True)),
                ("probation_until", models.DateTimeField(blank=True, null=True)),
                ("quarantine_count", models.IntegerField(db_default=0, default=0)),
                (
                    "evidence_since",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "refresh_hash",
                    models.CharField(blank=True, db_default="", default="", max_length=64),
                ),
                (
                    "refresh_previous_hash",
                    models.CharField(blank=True, db_default="", default="", max_length=64),
                ),
                ("refresh_rotated_at", models.DateTimeField(blank=True, null=True)),
                ("refresh_expires_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "node_managers",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", [0, 1, 2, 3, 4])),
                        name="node_managers_state_known",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SchedulerConfig",
            fields=[
                (
                    "created_at",
                    models.DateTimeField(
                        auto_now_add=True, db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        auto_now=True, db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("version", models.IntegerField(db_default=1, default=1)),
                ("suites_enabled", models.BooleanField(db_default=True, default=True)),
                ("lease_duration_s", models.IntegerField(db_default=3600, default=3600)),
                ("idle_threshold_s", models.IntegerField(db_default=300, default=300)),
                ("heartbeat_s", models.IntegerField(db_default=30, default=30)),
                ("quarantine_failures", models.IntegerField(db_default=3, default=3)),
                ("quarantine_window_s", models.IntegerField(db_default=600, default=600)),
                ("probe_after_s", models.IntegerField(db_default=600, default=600)),
            ],
            options={
                "verbose_name": "scheduler configuration",
                "db_table": "manager_config",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("id", 1)), name="manager_config_one_row"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("heartbeat_s__gte", 1),
                            ("idle_threshold_s__gte", 0),
                            ("lease_duration_s__gte", 1),
                            ("probe_after_s__gte", 1),
                            ("quarantine_failures__gte", 1),
                            ("quarantine_window_s__gte", 1),
                        ),
                        name="manager_config_numbers",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="PreparationFailure",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("assignment_id", models.BigIntegerField()),
                ("trouble", core.fields.EnumCodeField(managers.enums.PreparationTrouble)),
                ("exit_code", models.IntegerField(blank=True, null=True)),
                ("message", models.TextField(blank=True, default="")),
                (
                    "failed_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("forgiven_at", models.DateTimeField(blank=True, null=True)),
                (
                    "manager",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="managers.nodemanager",
                    ),
                ),
                (
                    "suite",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="suites.tasksuite",
                    ),
                ),
            ],
            options={
                "db_table": "preparation_failures",
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("forgiven_at__isnull", True)),
                        fields=("suite", "manager"),
                        name="preparation_failures_open",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SuiteAssignment",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "state",
                    core.fields.EnumCodeField(mitosis_protocol.enums.AssignmentState, default=0),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("lease_expires_at", models.DateTimeField()),
                ("renewals", models.IntegerField(db_default=0, default=0)),
                ("idle_since", models.DateTimeField(blank=True, null=True)),
                ("prepared_at", models.DateTimeField(blank=True, null=True)),
                (
                    "trouble",
                    core.fields.EnumCodeField(
                        managers.enums.PreparationTrouble, blank=True, null=True
                    ),
                ),
                (
                    "release_reason",
                    core.fields.EnumCodeField(managers.enums.ReleaseReason, blank=True, null=True),
                ),
                ("release_asked_at", models.DateTimeField(blank=True, null=True)),
                ("released_at", models.DateTimeField(blank=True, null=True)),
                (
                    "manager",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="assignments",
                        to="managers.nodemanager",
                    ),
                ),
                (
                    "suite",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="assignments",
                        to="suites.tasksuite",
                    ),
                ),
            ],
            options={
                "db_table": "suite_assignments",
                "indexes": [
                    models.Index(
                        condition=models.Q(("released_at__isnull", True)),
                        fields=["suite"],
                        name="suite_assignments_live_suite",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", [0, 1, 2, 3, 4, 5])),
                        name="suite_assignments_state_known",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("released_at__isnull", True)),
                        fields=("manager",),
                        name="suite_assignments_one_live",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("release_reason__isnull", False),
                                ("released_at__isnull", False),
                                ("state", 5),
                            ),
                            models.Q(
                                models.Q(("state", 5), _negated=True), ("released_at__isnull", True)
                            ),
                            _connector="OR",
                        ),
                        name="suite_assignments_released",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="SuiteManager",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("selection_type", core.fields.EnumCodeField(mitosis_protocol.enums.SelectionType)),
                (
                    "matched_tags",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), db_default=[], default=list, size=None
                    ),
                ),
                (
                    "added_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "added_by_user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "manager",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="eligible_suites",
                        to="managers.nodemanager",
                    ),
                ),
                (
                    "suite",
                    models.ForeignKey(
                        db_column="task_suite_id",
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="eligible_managers",
                        to="suites.tasksuite",
                    ),
                ),
            ],
            options={
                "db_table": "task_suite_managers",
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            ("selection_type", 0), ("removed_at__isnull", False), _connector="OR"
                        ),
                        fields=["suite"],
                        name="task_suite_managers_by_hand",
                    )
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("selection_type__in", [0, 1])),
                        name="task_suite_managers_selection_known",
                    ),
                    models.UniqueConstraint(
                        fields=("suite", "manager"), name="task_suite_managers_unique"
                    ),
                ],
            },
        ),
        # No way back is needed: the reverse of CreateModel drops the tables.
        migrations.RunSQL(load_sql("managers", "ddl/0001_managers"), migrations.RunSQL.noop),
    ]
