"""The view of who is alive; it counts held tasks, so the task tables come first."""

from django.db import migrations

from core.pg import load_sql


class Migration(migrations.Migration):
    dependencies = [("workers", "0001_initial"), ("tasks", "0001_initial")]

    operations = [
        migrations.RunSQL(
            load_sql("workers", "ddl/0002_worker_status"),
            load_sql("workers", "ddl/0002_worker_status_reverse"),
        )
    ]
