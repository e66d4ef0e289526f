"""Users, groups, memberships, the shared namespace and the audit log."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

import accounts.models
import core.fields
import mitosis_protocol.enums
from core.pg import load_sql


def ddl(name: str) -> str:
    return load_sql("accounts", f"ddl/{name}")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="AuditEntry",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("actor_kind", models.TextField()),
                ("actor_id", models.TextField(blank=True)),
                ("action", models.TextField()),
                ("object", models.TextField(blank=True)),
                ("outcome", models.TextField()),
                ("ip", models.GenericIPAddressField(blank=True, null=True)),
                ("request_id", models.TextField(blank=True)),
                ("detail", models.JSONField(default=dict)),
            ],
            options={
                "verbose_name_plural": "audit entries",
                "db_table": "audit_log",
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Name",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False)),
            ],
            options={
                "db_table": "names",
            },
        ),
        migrations.CreateModel(
            name="User",
            fields=[
                ("password", models.CharField(max_length=128, verbose_name="password")),
                (
                    "last_login",
                    models.DateTimeField(blank=True, null=True, verbose_name="last login"),
                ),
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
                (
                    "username",
                    models.CharField(
                        max_length=255, unique=True, validators=[accounts.models.validate_name]
                    ),
                ),
                ("state", core.fields.EnumCodeField(mitosis_protocol.enums.UserState, default=0)),
                ("is_staff", models.BooleanField(default=False, verbose_name="admin")),
                ("token_generation", models.IntegerField(db_default=1, default=1)),
                ("group_quota", models.IntegerField(db_default=8, default=8)),
                ("group_count", models.IntegerField(db_default=0, default=0)),
            ],
            options={
                "db_table": "users",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("state__in", [0, 1, 2])), name="users_state_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("username__regex", "^[A-Za-z0-9_-]{1,255}$")),
                        name="users_username_valid",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("group_quota__gte", 0)), name="users_group_quota_floor"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("group_count__gte", 0)), name="users_group_count_floor"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Group",
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
                (
                    "name",
                    models.CharField(
                        max_length=255, unique=True, validators=[accounts.models.validate_name]
                    ),
                ),
                ("state", core.fields.EnumCodeField(mitosis_protocol.enums.GroupState, default=0)),
                ("task_count", models.BigIntegerField(db_default=0, default=0)),
                (
                    "storage_quota",
                    models.BigIntegerField(db_default=16000000000, default=16000000000),
                ),
                ("storage_used", models.BigIntegerField(db_default=0, default=0)),
                (
                    "creator",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="created_groups",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "groups",
            },
        ),
        migrations.CreateModel(
            name="Membership",
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
                    "group",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="memberships",
                        to="accounts.group",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="memberships",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "memberships",
            },
        ),
        migrations.AddConstraint(
            model_name="group",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", [0, 1, 2])), name="groups_state_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="group",
            constraint=models.CheckConstraint(
                condition=models.Q(("name__regex", "^[A-Za-z0-9_-]{1,255}$")),
                name="groups_name_valid",
            ),
        ),
        migrations.AddConstraint(
            model_name="group",
            constraint=models.CheckConstraint(
                condition=models.Q(("storage_used__gte", 0)), name="groups_storage_used_floor"
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.CheckConstraint(
                condition=models.Q(("role__in", [0, 1, 2])), name="memberships_role_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="membership",
            constraint=models.UniqueConstraint(
                fields=("user", "group"), name="memberships_user_group_unique"
            ),
        ),
        migrations.RunSQL(ddl("0001_names"), ddl("0001_names_reverse")),
        migrations.RunSQL(ddl("0001_audit_log"), ddl("0001_audit_log_reverse")),
    ]
