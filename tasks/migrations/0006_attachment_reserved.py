"""What an attachment is charged beyond its size."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("tasks", "0005_console_indexes")]

    operations = [
        migrations.AddField(
            model_name="attachment",
            name="reserved",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.AddConstraint(
            model_name="attachment",
            constraint=models.CheckConstraint(
                name="attachments_reserved", condition=Q(reserved__gte=0)
            ),
        ),
    ]
