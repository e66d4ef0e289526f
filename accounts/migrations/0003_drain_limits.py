"""From when on direct workers of a group get no more work; NULL is the policy's, nothing is rewritten."""

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import migrations, models

PERCENT = [MinValueValidator(1), MaxValueValidator(100)]


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_priority_ceiling")]

    operations = [
        migrations.AddField(
            model_name="group",
            name="drain_mem_pct",
            field=models.SmallIntegerField(blank=True, null=True, validators=PERCENT),
        ),
        migrations.AddField(
            model_name="group",
            name="drain_disk_pct",
            field=models.SmallIntegerField(blank=True, null=True, validators=PERCENT),
        ),
    ]
