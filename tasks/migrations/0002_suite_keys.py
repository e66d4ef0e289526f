"""Foreign keys from tasks to suites and engagements, and which task reruns which."""

from django.db import migrations, models

from core.pg import load_sql


class Migration(migrations.Migration):
    dependencies = [
        ("tasks", "0001_initial"),
        ("suites", "0001_initial"),
        ("managers", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="TaskRerun",
            fields=[
                ("task_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("task_uuid", models.UUIDField()),
                ("original_id", models.BigIntegerField()),
                ("original_uuid", models.UUIDField()),
            ],
            options={
                "db_table": "task_reruns",
                "constraints": [
                    models.UniqueConstraint(fields=("original_id",), name="task_reruns_original")
                ],
            },
        ),
        migrations.RunSQL(
            load_sql("tasks", "ddl/0002_suite_keys"),
            load_sql("tasks", "ddl/0002_suite_keys_reverse"),
        ),
    ]
