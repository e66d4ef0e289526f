"""What managers measured, as samples and by the hour."""

from django.db import migrations, models

from core.pg import load_sql


class Migration(migrations.Migration):
    dependencies = [("managers", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="nodemanager",
            name="sampled_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.RunSQL(
            load_sql("managers", "ddl/0002_metrics"),
            load_sql("managers", "ddl/0002_metrics_reverse"),
        ),
    ]
