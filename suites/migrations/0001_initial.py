"""Task suites."""

import uuid

import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import core.fields
import mitosis_protocol.enums
from core.pg import load_sql


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="TaskSuite",
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
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("uuid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("name", models.TextField(blank=True, null=True)),
                ("description", models.TextField(blank=True, null=True)),
                ("tags", core.fields.TagArrayField(blank=True, default=list, size=None)),
                ("labels", core.fields.TagArrayField(blank=True, default=list, size=None)),
                ("priority", models.IntegerField(db_default=0, default=0)),
                ("worker_schedule", models.JSONField()),
                ("env_preparation", models.JSONField(blank=True, null=True)),
                ("env_cleanup", models.JSONField(blank=True, null=True)),
                ("limits", models.JSONField(blank=True, null=True)),
                ("retry", models.JSONField(blank=True, null=True)),
                (
                    "on_partition",
                    core.fields.EnumCodeField(mitosis_protocol.enums.PartitionPolicy, default=0),
                ),
                ("auto_match", models.BooleanField(db_default=True, default=True)),
                ("settle_seconds", models.IntegerField()),
                ("linger_seconds", models.IntegerField()),
                ("max_running", models.IntegerField(blank=True, null=True)),
                ("max_failures", models.IntegerField(blank=True, null=True)),
                ("failure_rate", models.FloatField(blank=True, null=True)),
                ("state", core.fields.EnumCodeField(mitosis_protocol.enums.SuiteState, default=0)),
                ("generation", models.IntegerField(db_default=1, default=1)),
                ("submit_count", models.BigIntegerField(db_default=0, default=0)),
                ("last_task_submitted_at", models.DateTimeField(blank=True, null=True)),
                (
                    "opened_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                ("completed_at", models.DateTimeField(blank=True, null=True)),
                ("cancelled_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_reason", models.TextField(blank=True, null=True)),
                ("paused_at", models.DateTimeField(blank=True, null=True)),
                ("blocked_at", models.DateTimeField(blank=True, null=True)),
                ("blocked_reason", models.TextField(blank=True, null=True)),
                ("forgiven_failed", models.BigIntegerField(db_default=0, default=0)),
                ("forgiven_succeeded", models.BigIntegerField(db_default=0, default=0)),
                (
                    "creator",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="accounts.group",
                    ),
                ),
            ],
            options={
                "db_table": "task_suites",
                "indexes": [
                    models.Index(fields=["group", "-id"], name="task_suites_group"),
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["tags"], name="task_suites_tags_gin"
                    ),
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["labels"], name="task_suites_labels_gin"
                    ),
                    models.Index(
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("id"),
                        condition=models.Q(("state__in", [0, 1])),
                        name="task_suites_live",
                    ),
                    models.Index(
                        condition=models.Q(("state", 0)),
                        fields=["last_task_submitted_at"],
                        name="task_suites_auto_close",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", [0, 1, 2, 3])),
                        name="task_suites_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("on_partition__in", [0, 1])),
                        name="task_suites_on_partition_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("linger_seconds__gte", 0),
                            ("settle_seconds__gte", 0),
                            ("submit_count__gte", 0),
                            models.Q(
                                ("max_running__isnull", True),
                                ("max_running__gte", 1),
                                _connector="OR",
                            ),
                            models.Q(
                                ("max_failures__isnull", True),
                                ("max_failures__gte", 1),
                                _connector="OR",
                            ),
                            models.Q(
                                ("failure_rate__isnull", True),
                                models.Q(("failure_rate__gt", 0), ("failure_rate__lte", 1)),
                                _connector="OR",
                            ),
                        ),
                        name="task_suites_numbers",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("completed_at__isnull", False), ("state", 2)),
                            models.Q(("state", 2), _negated=True),
                            _connector="OR",
                        ),
                        name="task_suites_complete_since",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", 2), _negated=True),
                            ("submit_count__gt", 0),
                            _connector="OR",
                        ),
                        name="task_suites_complete_had_tasks",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("blocked_at__isnull", True), ("blocked_reason__isnull", True)
                            ),
                            models.Q(
                                ("blocked_at__isnull", False), ("blocked_reason__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        name="task_suites_blocked_says_why",
                    ),
                ],
            },
        ),
        # No way back is needed: the reverse of CreateModel drops the table.
        migrations.RunSQL(load_sql("suites", "ddl/0001_task_suites"), migrations.RunSQL.noop),
    ]
