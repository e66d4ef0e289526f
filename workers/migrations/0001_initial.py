"""Workers beside their runners."""

import django.db.models.deletion
from django.db import migrations, models

from core.pg import load_sql


class Migration(migrations.Migration):
    initial = True

    dependencies = [("runners", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="Worker",
            fields=[
                (
                    "runner",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="worker",
                        serialize=False,
                        to="runners.runner",
                    ),
                ),
                ("lease_ttl_s", models.FloatField()),
                ("metadata", models.JSONField(blank=True, null=True)),
                ("metadata_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "db_table": "workers",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("lease_ttl_s__gt", 0)), name="workers_lease_ttl"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WorkerStatus",
            fields=[
                ("runner_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("worker_id", models.UUIDField()),
                ("status", models.TextField()),
                ("last_seen_at", models.DateTimeField()),
                ("active_tasks", models.BigIntegerField()),
                ("minutes_since_heartbeat", models.IntegerField()),
            ],
            options={
                "db_table": "worker_status",
                "managed": False,
                "verbose_name_plural": "worker status",
            },
        ),
        # No way back is needed: the reverse of CreateModel drops the table.
        migrations.RunSQL(load_sql("workers", "ddl/0001_workers"), migrations.RunSQL.noop),
    ]
