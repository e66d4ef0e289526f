"""Which task is the rerun of which: insert-only, beside the rows that move to the archive."""

from typing import ClassVar

from django.db import models
from typing_extensions import override


class TaskRerun(models.Model):
    """A new task made after one that ended. An ended task is rerun at most once."""

    task_id = models.BigIntegerField(primary_key=True)
    task_uuid = models.UUIDField()
    original_id = models.BigIntegerField()
    original_uuid = models.UUIDField()

    class Meta:
        db_table = "task_reruns"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["original_id"], name="task_reruns_original")
        ]

    @override
    def __str__(self) -> str:
        return f"task {self.task_id} reruns task {self.original_id}"
