"""Upload URLs for the archives of an attempt, for the runner that holds it.

Called by the API of workers and by the manager socket. One statement checks the fence, makes the
archive's row and charges the group; those of many runners share it (tasks.dispatcher).
"""

from collections.abc import Sequence

from core.errors import DatabaseUnavailable, InvalidInput, NotFound, QuotaExceeded, StaleAttempt
from mitosis_protocol.enums import ArtifactContentType
from tasks import store
from tasks.dispatcher import exact_uploads, get_dispatcher
from tasks.rows import UploadRequest, UploadRow
from tasks.services.artifacts import IssuedUpload
from tasks.services.patience import answer_all
from tasks.storage import Bucket, artifact_key, get_storage


async def issue_upload(
    *, attempt_id: int, runner_id: int, content_type: ArtifactContentType, size: int
) -> IssuedUpload:
    """Where to PUT `size` bytes. Raises NotFound, StaleAttempt, QuotaExceeded, InvalidInput."""
    request = UploadRequest(attempt_id, runner_id, content_type, size)
    return _issued(request, await get_dispatcher().uploads.submit(request))


def issue_upload_sync(
    *, attempt_id: int, runner_id: int, content_type: ArtifactContentType, size: int
) -> IssuedUpload:
    """As issue_upload, on Django's connection."""
    request = UploadRequest(attempt_id, runner_id, content_type, size)
    [row] = answer_all([request], _issue_once, is_busy=lambda row: row.answer == "busy")
    return _issued(request, row)


def _issue_once(requests: Sequence[UploadRequest]) -> list[UploadRow]:
    return exact_uploads(store.ISSUE_UPLOADS.fetch_sync(store.upload_params(requests)))


def _issued(request: UploadRequest, row: UploadRow) -> IssuedUpload:
    if row.answer != "ok" or row.task_uuid is None or row.attempt is None:
        raise _refusal(row)
    key = artifact_key(row.task_uuid, row.attempt, request.content_type)
    url = get_storage().upload_url(Bucket.ARTIFACTS, key, size=request.size)
    return IssuedUpload(url=url, exists=row.is_there)


def _refusal(row: UploadRow) -> Exception:
    if row.answer == "absent":
        return NotFound("Task not found")
    if row.answer == "stale":
        return StaleAttempt("The attempt is over; its uploads are no longer wanted")
    if row.answer == "inactive":
        return InvalidInput(f"Group {row.group_name} is not active")
    if row.answer == "quota":
        return QuotaExceeded()
    return DatabaseUnavailable("The archives of the task are locked; try again")
