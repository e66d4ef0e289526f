"""Uploading what a task left behind: result, exec-log and std-log archives, begun in that order.

Called by task_run after the command ended. One limit of 600 s covers building and sending; the
task is committed whatever happens here.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from mitosis_protocol.enums import ArtifactContentType
from mitosis_protocol.faults import afault
from nodeagent.errors import QuotaExceeded, ReportRefused, TaskGone
from nodeagent.worker.archives import Spool, archive_folder, archive_logs, has_entries
from nodeagent.worker.comm import TaskOffer, Upload, WorkerComm
from nodeagent.worker.retry import persist
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers, UploadRefused
from nodeagent.worker.workspace import Workspace

log = structlog.stdlib.get_logger(__name__)

TOTAL_S = 600.0
# A refused PUT gets a fresh URL so often: signatures expire, clocks differ.
_URL_TRIES = 3


Build: TypeAlias = Callable[[Spool, threading.Event], None]


class _Archive(msgspec.Struct, frozen=True):
    kind: ArtifactContentType
    build: Build


class _Parcel(msgspec.Struct, frozen=True):
    """An archive that may be sent."""

    report: Upload
    content: bytes | Path
    url: str


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
        wanted = list(self._wanted(offer, has_files=has_files))
        if not wanted:
            return True
        try:
            async with asyncio.timeout(TOTAL_S):
                return await self._upload_each(offer, wanted)
        except TimeoutError:
            log.warning("artifacts.timed_out", attempt_id=offer.attempt_id)
            return False

    async def _upload_each(self, offer: TaskOffer, wanted: Sequence[_Archive]) -> bool:
        sending: list[asyncio.Task[bool]] = []
        try:
            is_complete = await self._begin_each(offer, wanted, sending)
            return all(await asyncio.gather(*sending)) and is_complete
        finally:
            for one in sending:
                one.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def _begin_each(
        self, offer: TaskOffer, wanted: Sequence[_Archive], sending: list[asyncio.Task[bool]]
    ) -> bool:
        """One after the other; the next is built and asked for while a small one is on its way.

        Never two addresses at a time: a group without quota is asked once. A large archive is
        waited for, so that the disk holds one.
        """
        is_complete = True
        try:
            for archive in wanted:
                parcel = await self._prepare(offer, archive)
                if parcel is None:
                    is_complete = False
                elif isinstance(parcel.content, bytes):
                    sending.append(asyncio.create_task(self._send(offer, parcel)))
                elif not await self._send(offer, parcel):
                    is_complete = False
        except (QuotaExceeded, TaskGone) as error:
            _tell_skipped(offer, error)
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

    async def _prepare(self, offer: TaskOffer, archive: _Archive) -> _Parcel | None:
        """Built and with its first address; None if it is lost."""
        spool = Spool(self._workspace.spool_dir / f"{archive.kind.value}.tar.gz")
        is_ready = False
        try:
            await _build(archive, spool)
            report = Upload(archive.kind, spool.size)
            parcel = _Parcel(report, spool.content, await self._ask(offer, report))
            is_ready = True
        except (OSError, UploadRefused, ReportRefused) as error:
            if isinstance(error, TimeoutError):
                raise
            _tell_lost(archive.kind, error)
            return None
        finally:
            if not is_ready:
                await _discard(spool.content)
        return parcel

    async def _ask(self, offer: TaskOffer, report: Upload) -> str:
        url = await persist(partial(self._comm.report, offer, report), what="upload url")
        if url is None:
            raise UploadRefused("the coordinator gave no address")
        await afault("upload.url_issued")
        return url

    async def _send(self, offer: TaskOffer, parcel: _Parcel) -> bool:
        kind = parcel.report.content_type
        try:
            await self._send_patiently(offer, parcel)
        except (QuotaExceeded, TaskGone) as error:
            _tell_skipped(offer, error)
        except (OSError, UploadRefused, ReportRefused) as error:
            if isinstance(error, TimeoutError):
                raise
            _tell_lost(kind, error)
            return False
        finally:
            await _discard(parcel.content)
        return True

    async def _send_patiently(self, offer: TaskOffer, parcel: _Parcel) -> None:
        url, size = parcel.url, parcel.report.content_length
        for tries_left in reversed(range(_URL_TRIES)):
            put = partial(self._transfers.upload, url, parcel.content, size)
            try:
                await persist(put, what="upload")
            except UploadRefused:
                if not tries_left:
                    raise
            else:
                log.debug("artifacts.uploaded", kind=parcel.report.content_type.value, bytes=size)
                return
            url = await self._ask(offer, parcel.report)


async def _build(archive: _Archive, spool: Spool) -> None:
    abort = threading.Event()
    building = asyncio.ensure_future(asyncio.to_thread(archive.build, spool, abort))
    try:
        await asyncio.shield(building)
    finally:
        # On a timeout the builder notices between two blocks.
        abort.set()
        await asyncio.wait({building})
        building.exception()  # seen, so that asyncio does not complain about it


async def _discard(content: bytes | Path) -> None:
    if isinstance(content, Path):
        await run_blocking(content.unlink, missing_ok=True)


def _tell_skipped(offer: TaskOffer, error: Exception) -> None:
    log.warning("artifacts.skipped", attempt_id=offer.attempt_id, error=str(error))


def _tell_lost(kind: ArtifactContentType, error: Exception) -> None:
    log.warning("artifacts.lost", kind=kind.value, error=str(error))


def _folder_builder(folder: Path, prefix: str) -> Build:
    return lambda target, abort: archive_folder(folder, prefix, target, abort)


def _log_builder(space: Workspace) -> Build:
    files = {"std-log/stdout.log": space.stdout_file, "std-log/stderr.log": space.stderr_file}
    return lambda target, abort: archive_logs(files, target, abort)
