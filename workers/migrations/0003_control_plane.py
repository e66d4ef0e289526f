"""What direct workers have beside their runner, and who owns which affinity key."""

import django.db.models.deletion
from django.db import migrations, models

from core.fields import TagArrayField


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_priority_ceiling"),
        ("runners", "0002_ingest_presence"),
        ("workers", "0002_worker_status"),
    ]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="capabilities",
            field=models.JSONField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="worker",
            name="node_tags",
            field=TagArrayField(blank=True, db_default=[], default=list, size=None),
        ),
        migrations.AddField(
            model_name="worker",
            name="tenant",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="accounts.group",
            ),
        ),
        migrations.CreateModel(
            name="AffinityOwner",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group_id",
                        "key",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("key", models.TextField()),
                ("used_at", models.DateTimeField()),
                (
                    "group",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="accounts.group",
                    ),
                ),
                (
                    "runner",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="runners.runner",
                    ),
                ),
            ],
            options={
                "db_table": "affinity_owners",
            },
        ),
        migrations.CreateModel(
            name="WorkerResource",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("resource_id", models.TextField()),
                ("type", models.TextField()),
                ("scope", models.TextField(blank=True, null=True)),
                ("size_bytes", models.BigIntegerField(blank=True, null=True)),
                ("expires_at", models.DateTimeField(blank=True, null=True)),
                ("metadata", models.JSONField(blank=True, default=dict)),
                ("task_uuid", models.UUIDField(blank=True, null=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "runner",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="resources",
                        to="runners.runner",
                    ),
                ),
            ],
            options={
                "db_table": "worker_resources",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("runner", "resource_id"), name="worker_resources_one"
                    )
                ],
            },
        ),
    ]
