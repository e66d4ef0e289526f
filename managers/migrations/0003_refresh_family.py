"""The family of a manager's refresh tokens; tokens issued before join one when they are used."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("managers", "0002_metrics_history")]

    operations = [
        migrations.AddField(
            model_name="nodemanager",
            name="refresh_family_hash",
            field=models.CharField(blank=True, db_default="", default="", max_length=64),
        ),
    ]
