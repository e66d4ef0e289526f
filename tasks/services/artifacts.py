"""Archives of tasks: upload URLs that charge the group's storage, download URLs, deletion.

Called by the API of tasks; what runners upload is tasks.services.attempt_uploads. Every attempt has
objects of its own, so a late upload of a lost attempt touches nothing that counts. Charged when the
URL is issued; a superseded attempt's charge is given back by a newer one's upload, or by the sweep.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef

from accounts.services.storage import charge_storage, refund_storage
from core import clock
from core.errors import Conflict, InvalidInput, NotFound
from mitosis_protocol.enums import ArtifactContentType
from tasks.models import ActiveTask, ArchivedTask, Artifact
from tasks.selectors import Task
from tasks.selectors_uploads import USER_UPLOAD, find_artifact
from tasks.storage import (
    MAX_DOWNLOAD_URL_S,
    UPLOAD_URL_S,
    Bucket,
    artifact_key,
    download_validity_s,
    get_storage,
)

# Nothing is deleted while an upload URL for it may still be used.
DELETE_AFTER: Final = timedelta(seconds=UPLOAD_URL_S)
_BATCH: Final = 1000  # rows locked and objects removed in one go


@dataclass(frozen=True, slots=True)
class IssuedUpload:
    """Where to PUT; `exists` when something was uploaded there before."""

    url: str
    exists: bool


@dataclass(frozen=True, slots=True)
class Download:
    """Where to GET, and what was announced for it: how many bytes, and a sum if there was one."""

    url: str
    size: int
    sha256: str | None = None


def issue_task_upload(*, task: Task, content_type: ArtifactContentType, size: int) -> IssuedUpload:
    """For a user: replaces the archive that counts, or makes one outside any attempt."""
    present = find_artifact(task, content_type)
    attempt = USER_UPLOAD if present is None else present.attempt
    return _issue(task, attempt, content_type, size)


def artifact_download(artifact: Artifact) -> Download:
    """A link that lives from an hour to a day, by size."""
    valid_s = download_validity_s(artifact.size)
    url = get_storage().download_url(Bucket.ARTIFACTS, artifact.key, valid_s=valid_s)
    return Download(url, artifact.size)


def artifact_downloads(artifacts: Iterable[Artifact]) -> list[tuple[UUID, Download]]:
    """Links that live a day, with the task each belongs to."""
    storage = get_storage()
    return [
        (
            row.task_uuid,
            Download(
                storage.download_url(Bucket.ARTIFACTS, row.key, valid_s=MAX_DOWNLOAD_URL_S),
                row.size,
            ),
        )
        for row in artifacts
    ]


def delete_artifact(*, task: Task, content_type: ArtifactContentType, young: bool = False) -> None:
    """All archives of this type, whichever attempt; `young` skips the one-hour rule."""
    rows = Artifact.objects.filter(task_id=task.pk, content_type=content_type)
    if not rows.exists():
        raise NotFound(f"Artifact {content_type.value} of task {task.uuid} not found")
    is_young = rows.filter(updated_at__gt=clock.now() - DELETE_AFTER).exists()
    ids = list(rows.values_list("pk", flat=True))
    if (is_young and not young) or not delete_artifacts(ids, young=young):
        raise InvalidInput("the artifact was updated in the last hour and cannot be deleted yet")


def delete_artifacts(artifact_ids: Sequence[int], *, young: bool = False) -> set[UUID]:
    """Delete rows, objects and charges in batches; answers the tasks that lost an archive.

    Ones whose upload URL may still be in use are left alone unless `young`.
    """
    deleted: set[UUID] = set()
    for start in range(0, len(artifact_ids), _BATCH):
        deleted |= _delete_batch(artifact_ids[start : start + _BATCH], young=young)
    return deleted


def discard_superseded(*, limit: int = _BATCH) -> int:
    """A sweep: remove what attempts left behind that were claimed anew; returns how many."""
    newer = {"pk": OuterRef("task_id"), "attempt__gt": OuterRef("attempt")}
    rows = Artifact.objects.filter(
        attempt__gt=USER_UPLOAD, updated_at__lt=clock.now() - DELETE_AFTER
    ).filter(
        Exists(ActiveTask.objects.filter(**newer)) | Exists(ArchivedTask.objects.filter(**newer))
    )
    ids = list(rows.order_by("pk").values_list("pk", flat=True)[:limit])
    _delete_batch(ids, young=False)
    return len(ids)


def _issue(task: Task, attempt: int, content_type: ArtifactContentType, size: int) -> IssuedUpload:
    key = artifact_key(task.uuid, attempt, content_type)
    with transaction.atomic():
        # Artifact rows first, the group's row last: the order every writer here keeps.
        forgiven = _forgive_older(task, attempt)
        # Made with size 0 and locked, so that two requests at once charge the growth only once.
        made, is_new = Artifact.objects.get_or_create(
            key=key,
            defaults={
                "task_id": task.pk,
                "task_uuid": task.uuid,
                "group_id": task.group_id,
                "attempt": attempt,
                "content_type": content_type,
                "size": 0,
            },
        )
        row = Artifact.objects.select_for_update().filter(pk=made.pk).first()
        if row is None:
            raise Conflict("The artifact was deleted at the same time; ask again")
        growth = max(0, size - row.size)
        row.size = max(size, row.size)
        row.save(update_fields=["size", "updated_at"])
        refund_storage(group_id=task.group_id, delta=forgiven)
        charge_storage(group_id=task.group_id, delta=growth)
    url = get_storage().upload_url(Bucket.ARTIFACTS, key, size=size)
    return IssuedUpload(url=url, exists=not is_new)


def _forgive_older(task: Task, attempt: int) -> int:
    """What lost attempts were charged and is to be given back; their objects go with the sweep."""
    older = Artifact.objects.filter(
        task_id=task.pk, attempt__gt=USER_UPLOAD, attempt__lt=attempt, size__gt=0
    )
    sizes = dict(older.select_for_update().order_by("pk").values_list("pk", "size"))
    Artifact.objects.filter(pk__in=sizes).update(size=0)
    return sum(sizes.values())


def _delete_batch(ids: Collection[int], *, young: bool) -> set[UUID]:
    with transaction.atomic():
        rows = Artifact.objects.select_for_update().filter(pk__in=ids)
        if not young:
            rows = rows.filter(updated_at__lte=clock.now() - DELETE_AFTER)
        found = list(rows.order_by("pk"))
        if not found:
            return set()
        # Objects first: if the store fails nothing else has happened, and a repetition is harmless.
        get_storage().delete(Bucket.ARTIFACTS, [row.key for row in found])
        Artifact.objects.filter(pk__in=[row.pk for row in found]).delete()
        freed: dict[int, int] = {}
        for row in found:
            freed[row.group_id] = freed.get(row.group_id, 0) + row.size
        for group_id in sorted(freed):
            refund_storage(group_id=group_id, delta=freed[group_id])
    return {row.task_uuid for row in found}
