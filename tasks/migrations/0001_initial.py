"""The task queue, its evidence and its event log."""

import uuid

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import core.fields
import mitosis_protocol.enums
import tasks.enums
from core.pg import load_sql


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        ("accounts", "0001_initial"),
        ("runners", "0001_initial"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="TaskEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("kind", core.fields.EnumCodeField(tasks.enums.EventKind)),
                ("group_id", models.BigIntegerField()),
                ("suite_id", models.BigIntegerField(null=True)),
                ("task_id", models.BigIntegerField(null=True)),
                ("seq", models.IntegerField(null=True)),
                ("attempt", models.IntegerField(null=True)),
                ("runner_id", models.BigIntegerField(null=True)),
                ("state", core.fields.EnumCodeField(mitosis_protocol.enums.TaskPhase, null=True)),
                ("outcome", core.fields.EnumCodeField(mitosis_protocol.enums.Outcome, null=True)),
                ("data", models.JSONField(null=True)),
            ],
            options={
                "db_table": "task_events",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="SuiteCountDelta",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("suite_id", models.BigIntegerField()),
                ("total", models.BigIntegerField(db_default=0, default=0)),
                ("pending", models.BigIntegerField(db_default=0, default=0)),
                ("succeeded", models.BigIntegerField(db_default=0, default=0)),
                ("failed", models.BigIntegerField(db_default=0, default=0)),
                ("cancelled", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "db_table": "suite_count_deltas",
                "indexes": [models.Index(fields=["suite_id"], name="suite_count_deltas_suite")],
            },
        ),
        migrations.CreateModel(
            name="TaskDependency",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("task_id", models.BigIntegerField()),
                ("upstream_id", models.BigIntegerField()),
                (
                    "condition",
                    core.fields.EnumCodeField(
                        mitosis_protocol.enums.DependencyCondition, default=0
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "task dependencies",
                "db_table": "task_dependencies",
                "indexes": [
                    models.Index(fields=["upstream_id"], name="task_dependencies_upstream")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("task_id", "upstream_id"), name="task_dependencies_edge"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("upstream_id__lt", models.F("task_id"))),
                        name="task_dependencies_acyclic",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ActiveTask",
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
                ("uuid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("number", models.BigIntegerField()),
                ("suite_id", models.BigIntegerField(null=True)),
                ("assignment_id", models.BigIntegerField(null=True)),
                ("priority", models.IntegerField(db_default=0, default=0)),
                ("tags", core.fields.TagArrayField(blank=True, default=list, size=None)),
                ("labels", core.fields.TagArrayField(blank=True, default=list, size=None)),
                ("timeout_s", models.IntegerField()),
                ("spec", models.JSONField()),
                ("attempt", models.IntegerField(db_default=0, default=0)),
                ("attempt_id", models.BigIntegerField(null=True)),
                ("failures", models.IntegerField(db_default=0, default=0)),
                ("max_failures", models.IntegerField(db_default=6, default=6)),
                ("max_attempts", models.IntegerField(db_default=50, default=50)),
                ("backoff_s", models.FloatField(null=True)),
                ("backoff_max_s", models.FloatField(null=True)),
                ("retry_on", models.JSONField(null=True)),
                ("concurrency_key", models.TextField(null=True)),
                ("affinity", models.JSONField(null=True)),
                ("resource_refs", models.JSONField(null=True)),
                ("middleware", models.JSONField(null=True)),
                ("limits", models.JSONField(null=True)),
                ("pinned_runner_id", models.BigIntegerField(null=True)),
                ("upstream_task_id", models.BigIntegerField(null=True)),
                ("upstream_task_uuid", models.UUIDField(null=True)),
                ("downstream_task_uuid", models.UUIDField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("event_seq", models.IntegerField(db_default=1, default=1)),
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("state", core.fields.EnumCodeField(mitosis_protocol.enums.TaskPhase)),
                (
                    "is_ready",
                    models.GeneratedField(
                        db_persist=True,
                        expression=models.ExpressionWrapper(
                            models.Q(("state", 1)), output_field=models.BooleanField()
                        ),
                        output_field=models.BooleanField(),
                    ),
                ),
                (
                    "queue_id",
                    models.GeneratedField(
                        db_persist=True,
                        expression=django.db.models.functions.comparison.Coalesce(
                            django.db.models.expressions.CombinedExpression(
                                models.F("suite_id"), "*", models.Value(-1)
                            ),
                            models.F("group_id"),
                        ),
                        output_field=models.BigIntegerField(),
                    ),
                ),
                ("lane", models.BigIntegerField(db_default=0, default=0)),
                ("runner_id", models.BigIntegerField(null=True)),
                ("is_exclusive", models.BooleanField(db_default=False, default=False)),
                ("lost_runner_id", models.BigIntegerField(null=True)),
                ("lost_charge", models.SmallIntegerField(db_default=0, default=0)),
                (
                    "excluded_runner_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), db_default=[], default=list, size=None
                    ),
                ),
                ("waiting_on", models.IntegerField(db_default=0, default=0)),
                ("dependents", models.IntegerField(db_default=0, default=0)),
                (
                    "not_before",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("cancel_requested_at", models.DateTimeField(null=True)),
                ("last_op_id", models.UUIDField(null=True)),
                ("finish_cancelled", models.BooleanField(db_default=False, default=False)),
                (
                    "creator",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
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
                "db_table": "active_tasks",
                "indexes": [
                    models.Index(
                        models.F("queue_id"),
                        models.F("lane"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("id"),
                        condition=models.Q(("is_ready", True)),
                        name="active_tasks_claim",
                    ),
                    models.Index(
                        condition=models.Q(("runner_id__isnull", False)),
                        fields=["runner_id"],
                        name="active_tasks_runner",
                    ),
                    models.Index(fields=["group", "id"], name="active_tasks_group"),
                    models.Index(
                        condition=models.Q(("suite_id__isnull", False)),
                        fields=["suite_id", "id"],
                        name="active_tasks_suite",
                    ),
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["tags"], name="active_tasks_tags_gin"
                    ),
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["labels"], name="active_tasks_labels_gin"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", [0, 1, 2, 3, 4])),
                        name="active_tasks_state",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("runner_id__isnull", True), ("state__lte", 1)),
                            models.Q(
                                ("attempt_id__isnull", False),
                                ("runner_id__isnull", False),
                                ("state__gte", 2),
                            ),
                            _connector="OR",
                        ),
                        name="active_tasks_held_has_runner",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", 0), ("waiting_on__gt", 0)),
                            models.Q(("state__gt", 0), ("waiting_on", 0)),
                            _connector="OR",
                        ),
                        name="active_tasks_pending_waits",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lost_runner_id__isnull", True), ("state", 1), _connector="OR"
                        ),
                        name="active_tasks_lost_is_ready",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", 3), _negated=True),
                            ("started_at__isnull", False),
                            _connector="OR",
                        ),
                        name="active_tasks_running_started",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("attempt__gte", 0),
                            ("attempt__lte", models.F("max_attempts")),
                            ("dependents__gte", 0),
                            ("failures__gte", 0),
                            ("max_attempts__gte", 1),
                            ("max_failures__gte", 1),
                            ("timeout_s__gte", 0),
                        ),
                        name="active_tasks_budgets",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(("is_exclusive", True), ("runner_id__isnull", False)),
                        fields=("runner_id",),
                        name="active_tasks_one_per_exclusive_runner",
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("concurrency_key__isnull", False), ("runner_id__isnull", False)
                        ),
                        fields=("group", "concurrency_key"),
                        name="active_tasks_one_per_concurrency_key",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ArchivedTask",
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
                ("uuid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("number", models.BigIntegerField()),
                ("suite_id", models.BigIntegerField(null=True)),
                ("assignment_id", models.BigIntegerField(null=True)),
                ("priority", models.IntegerField(db_default=0, default=0)),
                ("tags", core.fields.TagArrayField(blank=True, default=list, size=None)),
                ("labels", core.fields.TagArrayField(blank=True, default=list, size=None)),
                ("timeout_s", models.IntegerField()),
                ("spec", models.JSONField()),
                ("attempt", models.IntegerField(db_default=0, default=0)),
                ("attempt_id", models.BigIntegerField(null=True)),
                ("failures", models.IntegerField(db_default=0, default=0)),
                ("max_failures", models.IntegerField(db_default=6, default=6)),
                ("max_attempts", models.IntegerField(db_default=50, default=50)),
                ("backoff_s", models.FloatField(null=True)),
                ("backoff_max_s", models.FloatField(null=True)),
                ("retry_on", models.JSONField(null=True)),
                ("concurrency_key", models.TextField(null=True)),
                ("affinity", models.JSONField(null=True)),
                ("resource_refs", models.JSONField(null=True)),
                ("middleware", models.JSONField(null=True)),
                ("limits", models.JSONField(null=True)),
                ("pinned_runner_id", models.BigIntegerField(null=True)),
                ("upstream_task_id", models.BigIntegerField(null=True)),
                ("upstream_task_uuid", models.UUIDField(null=True)),
                ("downstream_task_uuid", models.UUIDField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("event_seq", models.IntegerField(db_default=1, default=1)),
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("state", core.fields.EnumCodeField(mitosis_protocol.enums.TaskState)),
                ("outcome", core.fields.EnumCodeField(mitosis_protocol.enums.Outcome)),
                ("exit_status", models.IntegerField(null=True)),
                (
                    "msg",
                    core.fields.EnumCodeField(mitosis_protocol.enums.TaskResultMessage, null=True),
                ),
                ("reason", models.TextField(null=True)),
                ("result", models.JSONField(null=True)),
                ("runner_id", models.BigIntegerField(null=True)),
                ("reporter_uuid", models.UUIDField(null=True)),
                ("op_id", models.UUIDField(null=True)),
                (
                    "ended_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "creator",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
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
                "db_table": "archived_tasks",
                "indexes": [
                    models.Index(fields=["group", "id"], name="archived_tasks_group"),
                    models.Index(
                        condition=models.Q(("suite_id__isnull", False)),
                        fields=["suite_id", "id"],
                        name="archived_tasks_suite",
                    ),
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["tags"], name="archived_tasks_tags_gin"
                    ),
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["labels"], name="archived_tasks_labels_gin"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", [3, 4])), name="archived_tasks_state"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("outcome__in", [0, 1, 2, 3, 4, 5])),
                        name="archived_tasks_outcome",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Artifact",
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
                ("task_id", models.BigIntegerField()),
                ("task_uuid", models.UUIDField()),
                ("attempt", models.IntegerField()),
                (
                    "content_type",
                    core.fields.EnumCodeField(mitosis_protocol.enums.ArtifactContentType),
                ),
                ("size", models.BigIntegerField()),
                ("key", models.TextField(unique=True)),
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
                "db_table": "artifacts",
                "indexes": [models.Index(fields=["task_id"], name="artifacts_task")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("task_uuid", "attempt", "content_type"), name="artifacts_unique"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("size__gte", 0)), name="artifacts_size"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attachment",
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
                ("key", models.TextField()),
                (
                    "content_type",
                    core.fields.EnumCodeField(
                        mitosis_protocol.enums.AttachmentContentType, default=0
                    ),
                ),
                ("size", models.BigIntegerField()),
                ("sha256", models.BinaryField(max_length=32, null=True)),
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
                "db_table": "attachments",
                "constraints": [
                    models.UniqueConstraint(fields=("group", "key"), name="attachments_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("size__gte", 0)), name="attachments_size"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Submission",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("idempotency_key", models.TextField()),
                ("request_sha256", models.BinaryField(max_length=32)),
                ("response", models.BinaryField(null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "submissions",
                "indexes": [models.Index(fields=["created_at"], name="submissions_created")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "idempotency_key"), name="submissions_unique"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="TaskAttempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("task_id", models.BigIntegerField()),
                ("attempt", models.IntegerField()),
                ("session_epoch", models.BigIntegerField()),
                ("assignment_id", models.BigIntegerField(null=True)),
                ("claim_id", models.UUIDField()),
                (
                    "claimed_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("ending", core.fields.EnumCodeField(tasks.enums.AttemptEnd, null=True)),
                ("outcome", core.fields.EnumCodeField(mitosis_protocol.enums.Outcome, null=True)),
                ("exit_status", models.IntegerField(null=True)),
                ("reason", models.TextField(null=True)),
                ("op_id", models.UUIDField(null=True)),
                (
                    "runner",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runners.runner",
                    ),
                ),
            ],
            options={
                "db_table": "task_attempts",
                "indexes": [models.Index(fields=["claim_id"], name="task_attempts_claim")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("task_id", "attempt"), name="task_attempts_fence"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("ended_at__isnull", True), ("ending__isnull", True)),
                            models.Q(("ended_at__isnull", False), ("ending__isnull", False)),
                            _connector="OR",
                        ),
                        name="task_attempts_ended",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="TaskExecutionFailure",
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
                ("task_id", models.BigIntegerField()),
                ("task_uuid", models.UUIDField()),
                ("suite_id", models.BigIntegerField(null=True)),
                ("failure_count", models.IntegerField(db_default=1, default=1)),
                (
                    "last_failure_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "error_messages",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), db_default=[], default=list, size=None
                    ),
                ),
                ("worker_local_id", models.IntegerField(null=True)),
                (
                    "runner",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runners.runner",
                    ),
                ),
            ],
            options={
                "db_table": "task_execution_failures",
                "indexes": [
                    models.Index(fields=["task_uuid"], name="task_failures_uuid"),
                    models.Index(fields=["runner", "last_failure_at"], name="task_failures_runner"),
                    models.Index(
                        condition=models.Q(("suite_id__isnull", False)),
                        fields=["suite_id"],
                        name="task_failures_suite",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("task_id", "runner"), name="task_execution_failures_unique"
                    )
                ],
            },
        ),
        migrations.RunSQL(
            load_sql("tasks", "ddl/0001_tasks"), load_sql("tasks", "ddl/0001_tasks_reverse")
        ),
    ]
