"""The task a command asks for by writing JSON to `$MITO_NEW_TASK`.

Called by task_run between the uploads and the commit. The coordinator validates the request; here
we only make sure that it is one JSON object, and that it is submitted once.
"""

import os
import stat
from pathlib import Path

import msgspec
import structlog

from mitosis_protocol.limits import MAX_BODY_BYTES
from nodeagent.errors import CoordinatorUnavailable, QuotaExceeded, ReportRefused, ResourceMissing
from nodeagent.worker.comm import Submit, TaskOffer, WorkerComm
from nodeagent.worker.retry import persist
from nodeagent.worker.threads import run_blocking

log = structlog.stdlib.get_logger(__name__)

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FollowUpUnreadable(Exception):
    """The file is there but is not one JSON object of sensible size."""


def read_follow_up(file: Path) -> msgspec.Raw | None:
    """The request the command wrote, or None when it wrote nothing."""
    try:
        fd = os.open(file, _READ)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FollowUpUnreadable(error.strerror) from error
    with os.fdopen(fd, "rb") as source:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FollowUpUnreadable("not a regular file")
        data = source.read(MAX_BODY_BYTES + 1)
    if not data.strip():
        return None
    if len(data) > MAX_BODY_BYTES:
        raise FollowUpUnreadable("larger than a request may be")
    try:
        msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FollowUpUnreadable("not a JSON object") from error
    return msgspec.Raw(data)


async def submit_follow_up(comm: WorkerComm, offer: TaskOffer, file: Path) -> bool:
    """False when there was something to submit and it was not accepted. Raises TaskGone."""
    if not _exists(file):
        return True  # the usual case, without the way through a thread
    try:
        request = await run_blocking(read_follow_up, file)
        if request is not None:
            await persist(_once(comm, offer, Submit(request)), what="submit")
            log.info("follow_up.submitted", attempt_id=offer.attempt_id)
    except (FollowUpUnreadable, ReportRefused, QuotaExceeded, ResourceMissing) as error:
        log.warning("follow_up.failed", attempt_id=offer.attempt_id, error=str(error))
        return False
    return True


def _exists(file: Path) -> bool:
    return os.path.lexists(file)


class _once:  # noqa: N801 - used like a function: one submission with a memory
    """Submit, and after an answer was lost look first whether the task exists already."""

    def __init__(self, comm: WorkerComm, offer: TaskOffer, submit: Submit) -> None:
        self._comm = comm
        self._offer = offer
        self._submit = submit
        self._is_uncertain = False

    async def __call__(self) -> None:
        if self._is_uncertain:
            task = await self._comm.read_task(self._offer.uuid)
            if task.downstream_task_uuid is not None:
                return
        try:
            await self._comm.report(self._offer, self._submit)
        except CoordinatorUnavailable as error:
            self._is_uncertain |= error.maybe_applied
            raise
