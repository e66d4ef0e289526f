"""Reads of what was uploaded: the archives of tasks and the files of groups.

Which archive of a task counts: the one of its newest attempt, else the one a user uploaded outside
any attempt (attempt 0). Archives of older attempts are leftovers that a sweep removes.
"""

from collections.abc import Collection, Iterable
from typing import Final

from django.db.models import QuerySet

from core.errors import NotFound
from mitosis_protocol.enums import ArtifactContentType
from tasks.models import ActiveTask, ArchivedTask, Artifact, Attachment
from tasks.selectors import Task, TaskPlace

USER_UPLOAD: Final = 0  # the attempt under which a user's own upload is kept


def list_artifacts(task: Task) -> list[Artifact]:
    """At most one of each type."""
    rows = Artifact.objects.filter(task_id=task.pk, attempt__in=(USER_UPLOAD, task.attempt))
    newest = {row.content_type: row for row in rows.order_by("attempt")}
    return sorted(newest.values(), key=lambda row: row.content_type.code)


def find_artifact(task: Task, content_type: ArtifactContentType) -> Artifact | None:
    rows = Artifact.objects.filter(
        task_id=task.pk, attempt__in=(USER_UPLOAD, task.attempt), content_type=content_type
    )
    return rows.order_by("-attempt").first()


def get_artifact(task: Task, content_type: ArtifactContentType) -> Artifact:
    artifact = find_artifact(task, content_type)
    if artifact is None:
        raise NotFound(f"Artifact {content_type.value} of task {task.uuid} not found")
    return artifact


def find_artifacts(
    places: Iterable[TaskPlace], content_type: ArtifactContentType
) -> dict[int, Artifact]:
    """By task id, for those tasks that have one."""
    attempts = {place.id: place.attempt for place in places}
    rows = Artifact.objects.filter(task_id__in=list(attempts), content_type=content_type)
    return {
        row.task_id: row
        for row in rows.order_by("attempt")
        if row.attempt in (USER_UPLOAD, attempts[row.task_id])
    }


def list_matching_artifacts(ids: Collection[tuple[int, int]]) -> list[Artifact]:
    """Of archives found by filter, those that count; oldest task first."""
    places = [*_attempts(ActiveTask, ids), *_attempts(ArchivedTask, ids)]
    # The archive comes second and wins: a task found in both tables has just moved.
    attempts = dict(places)
    rows = Artifact.objects.filter(pk__in=[artifact_id for _, artifact_id in ids])
    newest = {
        row.task_id: row
        for row in rows.order_by("task_id", "attempt")
        if row.attempt in (USER_UPLOAD, attempts.get(row.task_id))
    }
    return list(newest.values())


def _attempts(
    model: type[ActiveTask] | type[ArchivedTask], ids: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    rows = model._default_manager.filter(pk__in={task_id for task_id, _ in ids})  # noqa: SLF001 - Django's public API
    return list(rows.values_list("pk", "attempt"))


def find_attachment(group_id: int, key: str) -> Attachment | None:
    if "\x00" in key:  # the driver refuses it
        return None
    return Attachment.objects.filter(group_id=group_id, key=key).first()


def get_attachment(group_id: int, key: str) -> Attachment:
    attachment = find_attachment(group_id, key)
    if attachment is None:
        raise NotFound(f"Attachment {key} not found")
    return attachment


def list_attachments(
    group_id: int, *, part: str | None = None, keys: Collection[str] | None = None
) -> QuerySet[Attachment]:
    """In the order of their keys; `part` is looked for as it stands, `%` and `_` included."""
    rows = Attachment.objects.filter(group_id=group_id)
    if part:
        rows = rows.filter(key__contains=part)
    if keys is not None:
        rows = rows.filter(key__in=list(keys))
    return rows.order_by("key")
