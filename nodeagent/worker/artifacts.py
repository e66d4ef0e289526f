"""Uploading what a task left behind: result, exec-log and std-log archives, in that order.

Called by task_run after the command ended. One limit of 600 s covers building and sending; the
task is committed whatever happens here.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
import structlog

from mitosis_protocol.enums import ArtifactContentType
from mitosis_protocol.faults import afault
from nodeagent.errors import QuotaExceeded, ReportRefused, TaskGone
from nodeagent.worker.archives import archive_folder, archive_logs, has_entries
from nodeagent.worker.comm import TaskOffer, Upload, WorkerComm
from nodeagent.worker.retry import persist
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers, UploadRefused
from nodeagent.worker.workspace import Workspace

log = structlog.stdlib.get_logger(__name__)

TOTAL_S = 600.0
# A refused PUT gets a fresh URL so often: signatures expire, clocks differ.
_URL_TRIES = 3


class _Archive(msgspec.Struct, frozen=True):
    kind: ArtifactContentType
    build: Callable[[Path, threading.Event], int]


class ArtifactUploader:
    """Uploads the archives of one attempt after another."""

    def __init__(self, comm: WorkerComm, transfers: Transfers, workspace: Workspace) -> None:
        self._comm = comm
        self._transfers = transfers
        self._workspace = workspace

    async def upload_all(self, offer: TaskOffer, *, has_files: bool = True) -> bool:
        """Whether the task kept all its archives; one refused for quota counts as kept.

        Existing workers commit a task without a message when the group's quota is used up.
        Without `has_files` its directories are not looked at.
        """
        is_complete = True
        wanted = list(self._wanted(offer, has_files=has_files))
        if not wanted:
            return True
        try:
            async with asyncio.timeout(TOTAL_S):
                for archive in wanted:
                    if not await self._upload(offer, archive):
                        is_complete = False
        except TimeoutError:
            log.warning("artifacts.timed_out", attempt_id=offer.attempt_id)
            return False
        except (QuotaExceeded, TaskGone) as error:
            log.warning("artifacts.skipped", attempt_id=offer.attempt_id, error=str(error))
        return is_complete

    def _wanted(self, offer: TaskOffer, *, has_files: bool) -> Iterator[_Archive]:
        space = self._workspace
        for kind, folder in (
            (ArtifactContentType.RESULT, space.result_dir),
            (ArtifactContentType.EXEC_LOG, space.exec_dir),
        ):
            if has_files and has_entries(folder):
                yield _Archive(kind, _folder_builder(folder, kind.value))
        if offer.spec.terminal_output:
            yield _Archive(ArtifactContentType.STD_LOG, _log_builder(space))

    async def _upload(self, offer: TaskOffer, archive: _Archive) -> bool:
        file = self._workspace.spool_dir / f"{archive.kind.value}.tar.gz"
        abort = threading.Event()
        try:
            building = asyncio.ensure_future(asyncio.to_thread(archive.build, file, abort))
            try:
                size = await asyncio.shield(building)
            finally:
                # On a timeout the builder notices between two blocks.
                abort.set()
                await asyncio.wait({building})
                building.exception()  # seen, so that asyncio does not complain about it
            await self._send(offer, archive.kind, file, size)
        except (OSError, UploadRefused, ReportRefused) as error:
            if isinstance(error, TimeoutError):
                raise
            log.warning("artifacts.lost", kind=archive.kind.value, error=str(error))
            return False
        finally:
            await run_blocking(file.unlink, missing_ok=True)
        return True

    async def _send(
        self, offer: TaskOffer, kind: ArtifactContentType, file: Path, size: int
    ) -> None:
        report = Upload(kind, size)
        for tries_left in reversed(range(_URL_TRIES)):
            url = await persist(partial(self._comm.report, offer, report), what="upload url")
            if url is None:
                raise UploadRefused("the coordinator gave no address")
            await afault("upload.url_issued")
            try:
                await persist(partial(self._transfers.upload, url, file, size), what="upload")
            except UploadRefused:
                if not tries_left:
                    raise
            else:
                log.debug("artifacts.uploaded", kind=kind.value, bytes=size)
                return


def _folder_builder(folder: Path, prefix: str) -> Callable[[Path, threading.Event], int]:
    return lambda target, abort: archive_folder(folder, prefix, target, abort)


def _log_builder(space: Workspace) -> Callable[[Path, threading.Event], int]:
    files = {"std-log/stdout.log": space.stdout_file, "std-log/stderr.log": space.stderr_file}
    return lambda target, abort: archive_logs(files, target, abort)
