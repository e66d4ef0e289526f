"""Foreign keys that the writing statements prove become guards of their parents (ADR 0019)."""

from django.db import migrations

from core.pg import load_sql


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0002_priority_ceiling"),
        ("runners", "0002_ingest_presence"),
        ("managers", "0002_metrics_history"),
        ("tasks", "0007_pinned"),
    ]

    operations = [
        migrations.RunSQL(
            load_sql("tasks", "ddl/0008_proven_keys"),
            load_sql("tasks", "ddl/0008_proven_keys_reverse"),
        ),
    ]
