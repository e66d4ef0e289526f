"""How urgent the tasks of a group may be; NULL is no ceiling, so nothing is rewritten."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="group",
            name="priority_ceiling",
            field=models.IntegerField(blank=True, null=True),
        ),
    ]
