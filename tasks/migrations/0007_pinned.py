"""Waiting tasks of one runner alone, for the sweep that ends them when it is gone."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    # Built beside the running queue.
    atomic = False

    dependencies = [("tasks", "0006_attachment_reserved")]

    operations = [
        # Waiting for transactions of others blocks nobody; two seconds may be too short for it.
        migrations.RunSQL("SET lock_timeout = '300s'", migrations.RunSQL.noop),
        # A run that was interrupted leaves an index that is not valid, and its name taken.
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS active_tasks_pinned", migrations.RunSQL.noop
        ),
        AddIndexConcurrently(
            model_name="activetask",
            index=models.Index(
                condition=models.Q(("is_ready", True), ("pinned_runner_id__isnull", False)),
                fields=["pinned_runner_id"],
                name="active_tasks_pinned",
            ),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
