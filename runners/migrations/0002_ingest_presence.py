"""When runners could reach a coordinator."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runners", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="IngestPresence",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("up_since", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
            ],
            options={
                "verbose_name_plural": "ingest presence",
                "db_table": "ingest_presence",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("id", 1)), name="ingest_presence_single"
                    )
                ],
            },
        )
    ]
