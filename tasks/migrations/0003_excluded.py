"""An index over tasks that some manager has given up."""

from django.db import migrations

from core.pg import load_sql


class Migration(migrations.Migration):
    dependencies = [("tasks", "0002_suite_keys")]

    operations = [
        migrations.RunSQL(
            load_sql("tasks", "ddl/0003_excluded"), load_sql("tasks", "ddl/0003_excluded_reverse")
        ),
    ]
