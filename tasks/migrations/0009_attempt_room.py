"""Room on a page for the second version of every attempt."""

from django.db import migrations

from core.pg import load_sql


class Migration(migrations.Migration):
    dependencies = [("tasks", "0008_proven_keys")]

    operations = [
        migrations.RunSQL(
            load_sql("tasks", "ddl/0009_attempt_room"),
            load_sql("tasks", "ddl/0009_attempt_room_reverse"),
        ),
    ]
