"""An index over tasks that a lost runner may still report."""

from django.db import migrations

from core.pg import load_sql


class Migration(migrations.Migration):
    dependencies = [("tasks", "0003_excluded")]

    operations = [
        migrations.RunSQL(
            load_sql("tasks", "ddl/0004_lost"), load_sql("tasks", "ddl/0004_lost_reverse")
        ),
    ]
