"""The client certificate a direct worker was registered with."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0003_control_plane")]

    operations = [
        migrations.AddField(
            model_name="worker",
            name="certificate",
            field=models.TextField(blank=True, null=True),
        ),
    ]
