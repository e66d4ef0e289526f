"""Runners, their leases and the roles of groups on them."""

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
            name="Runner",
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
                ("kind", core.fields.EnumCodeField(mitosis_protocol.enums.RunnerKind)),
                ("token_generation", models.IntegerField(db_default=1, default=1)),
                ("session_epoch", models.BigIntegerField(db_default=0, default=0)),
                ("process_id", models.UUIDField(blank=True, null=True)),
                (
                    "conn_state",
                    core.fields.EnumCodeField(mitosis_protocol.enums.ConnState, default=0),
                ),
                (
                    "desired_state",
                    core.fields.EnumCodeField(mitosis_protocol.enums.DesiredState, default=0),
                ),
                ("revoked_at", models.DateTimeField(blank=True, null=True)),
                ("tags", core.fields.TagArrayField(blank=True, default=list, size=None)),
                ("labels", core.fields.TagArrayField(blank=True, default=list, size=None)),
                (
                    "owner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="runners",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "runners",
            },
        ),
        migrations.CreateModel(
            name="RunnerLease",
            fields=[
                (
                    "runner",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="lease",
                        serialize=False,
                        to="runners.runner",
                    ),
                ),
                ("session_epoch", models.BigIntegerField()),
                ("expires_at", models.DateTimeField()),
            ],
            options={
                "db_table": "runner_leases",
            },
        ),
        migrations.CreateModel(
            name="GroupRunner",
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
                ("role", core.fields.EnumCodeField(mitosis_protocol.enums.Role)),
                (
                    "consent",
                    core.fields.EnumCodeField(mitosis_protocol.enums.ConsentState, default=0),
                ),
                ("decided_at", models.DateTimeField(blank=True, null=True)),
                (
                    "decided_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="runner_roles",
                        to="accounts.group",
                    ),
                ),
                (
                    "runner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="group_roles",
                        to="runners.runner",
                    ),
                ),
            ],
            options={
                "db_table": "group_runners",
            },
        ),
        migrations.AddIndex(
            model_name="runner",
            index=django.contrib.postgres.indexes.GinIndex(
                fields=["tags"], name="runners_tags_gin"
            ),
        ),
        migrations.AddIndex(
            model_name="runner",
            index=django.contrib.postgres.indexes.GinIndex(
                fields=["labels"], name="runners_labels_gin"
            ),
        ),
        migrations.AddIndex(
            model_name="runner",
            index=models.Index(fields=["kind", "id"], name="runners_kind_id"),
        ),
        migrations.AddConstraint(
            model_name="runner",
            constraint=models.CheckConstraint(
                condition=models.Q(("kind__in", [0, 1, 2])), name="runners_kind_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="runner",
            constraint=models.CheckConstraint(
                condition=models.Q(("conn_state__in", [0, 1, 2])), name="runners_conn_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="runner",
            constraint=models.CheckConstraint(
                condition=models.Q(("desired_state__in", [0, 1, 2, 3])),
                name="runners_desired_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="grouprunner",
            constraint=models.CheckConstraint(
                condition=models.Q(("role__in", [0, 1, 2])), name="group_runners_role_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="grouprunner",
            constraint=models.CheckConstraint(
                condition=models.Q(("consent__in", [0, 1, 2])), name="group_runners_consent_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="grouprunner",
            constraint=models.UniqueConstraint(
                fields=("group", "runner"), name="group_runners_unique"
            ),
        ),
        # No way back is needed: the reverse of CreateModel drops the table.
        migrations.RunSQL(load_sql("runners", "ddl/0001_runner_leases"), migrations.RunSQL.noop),
    ]
