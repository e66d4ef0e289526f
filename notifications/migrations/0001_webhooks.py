"""Webhooks, their log, and the triggers that write it."""

import uuid

import django.contrib.postgres.fields
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
        ("accounts", "0002_priority_ceiling"),
        ("managers", "0002_metrics_history"),
        ("runners", "0002_ingest_presence"),
        ("suites", "0001_initial"),
        ("tasks", "0004_lost"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="FailureMinute",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("suite_id", models.BigIntegerField()),
                ("minute", models.DateTimeField()),
                ("failed", models.IntegerField()),
            ],
            options={
                "db_table": "failure_minutes",
                "indexes": [models.Index(fields=["minute"], name="failure_minutes_minute")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("suite_id", "minute"), name="failure_minutes_unique"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="JobTurn",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("until", models.DateTimeField()),
            ],
            options={
                "db_table": "job_turns",
            },
        ),
        migrations.CreateModel(
            name="LogPosition",
            fields=[
                ("reader", models.TextField(primary_key=True, serialize=False)),
                ("xid", models.TextField()),
                ("event_id", models.BigIntegerField()),
            ],
            options={
                "db_table": "log_positions",
            },
        ),
        migrations.CreateModel(
            name="Webhook",
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
                ("url", models.CharField(max_length=500)),
                (
                    "kinds",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.SmallIntegerField(), size=None
                    ),
                ),
                ("is_enabled", models.BooleanField(db_default=True, default=True)),
                ("secret_version", models.IntegerField(db_default=1, default=1)),
                (
                    "created_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="webhooks",
                        to="accounts.group",
                    ),
                ),
            ],
            options={
                "db_table": "webhooks",
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("uuid", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("kind", core.fields.EnumCodeField(mitosis_protocol.enums.NoticeKind)),
                ("subject", models.UUIDField(null=True)),
                ("data", models.JSONField()),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                (
                    "state",
                    core.fields.EnumCodeField(mitosis_protocol.enums.DeliveryState, default=0),
                ),
                ("tries", models.IntegerField(db_default=0, default=0)),
                (
                    "next_try_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
                ("last_try_at", models.DateTimeField(null=True)),
                ("last_status", models.IntegerField(null=True)),
                ("last_error", models.TextField(blank=True, db_default="", default="")),
                ("delivered_at", models.DateTimeField(null=True)),
                (
                    "webhook",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="notifications.webhook",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "webhook deliveries",
                "db_table": "webhook_deliveries",
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", 0)),
                        fields=["next_try_at"],
                        name="webhook_deliveries_due",
                    ),
                    models.Index(fields=["webhook", "-id"], name="webhook_deliveries_log"),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("kind__in", [0, 1, 2, 3, 4, 5])),
                        name="webhook_deliveries_kind_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", [0, 1, 2])),
                        name="webhook_deliveries_state_known",
                    ),
                ],
            },
        ),
        migrations.RunSQL(
            load_sql("notifications", "ddl/0001_triggers"),
            load_sql("notifications", "ddl/0001_triggers_reverse"),
        ),
    ]
