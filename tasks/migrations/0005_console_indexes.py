import django.contrib.postgres.indexes
from django.conf import settings
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

NAMES = (
    "archived_tasks_failed",
    "archived_tasks_failed_group",
    "archived_tasks_failed_suite",
    "archived_tasks_ended",
)


class Migration(migrations.Migration):
    # Built beside the running queue: the archive may have millions of rows.
    atomic = False

    dependencies = [
        ("accounts", "0002_priority_ceiling"),
        ("tasks", "0004_lost"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        # Waiting for transactions of others blocks nobody; two seconds may be too short for it.
        migrations.RunSQL("SET lock_timeout = '300s'", migrations.RunSQL.noop),
        # A run that was interrupted leaves an index that is not valid, and its name taken.
        migrations.RunSQL(
            [f"DROP INDEX CONCURRENTLY IF EXISTS {name}" for name in NAMES],
            migrations.RunSQL.noop,
        ),
        AddIndexConcurrently(
            model_name="archivedtask",
            index=models.Index(
                models.OrderBy(models.F("ended_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("outcome__in", [1, 2, 3, 5])),
                name="archived_tasks_failed",
            ),
        ),
        AddIndexConcurrently(
            model_name="archivedtask",
            index=models.Index(
                models.F("group"),
                models.OrderBy(models.F("ended_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("outcome__in", [1, 2, 3, 5])),
                name="archived_tasks_failed_group",
            ),
        ),
        AddIndexConcurrently(
            model_name="archivedtask",
            index=models.Index(
                models.F("suite_id"),
                models.OrderBy(models.F("ended_at"), descending=True),
                models.OrderBy(models.F("id"), descending=True),
                condition=models.Q(("outcome__in", [1, 2, 3, 5]), ("suite_id__isnull", False)),
                name="archived_tasks_failed_suite",
            ),
        ),
        AddIndexConcurrently(
            model_name="archivedtask",
            index=django.contrib.postgres.indexes.BrinIndex(
                autosummarize=True,
                fields=["ended_at"],
                name="archived_tasks_ended",
                pages_per_range=32,
            ),
        ),
        migrations.RunSQL("RESET lock_timeout", migrations.RunSQL.noop),
    ]
