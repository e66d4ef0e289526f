"""Bringing a hook's resources to the host: links, downloads, sums, retries up to a deadline.

Each file is written under a temporary name below the suite's shared directory, compared with what
the coordinator and the store say about it, and then renamed into place. Called by runner.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.specs import RemoteResource, ResourceRef
from mitosis_protocol.to_manager import ResolvedResource
from nodeagent.errors import (
    CoordinatorUnavailable,
    ResourceMissing,
    ResourceRefused,
    TransientError,
)
from nodeagent.worker.comm import RemoteLocation
from nodeagent.worker.resource_files import Access, IncomingFile, local_parts
from nodeagent.worker.retry import Backoff
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import StoredSums, Transfers

log = structlog.stdlib.get_logger(__name__)

Resolve: TypeAlias = Callable[[Sequence[RemoteResource]], Awaitable[Sequence[ResolvedResource]]]

# The coordinator answers within 25 s or not at all; the rest is for a socket that just came back.
_RESOLVE_S = 60.0
# The same wrong bytes twice, with a fresh link, are not an accident on the way.
_MISMATCH_TRIES = 2
_TRANSIENT_CODES = frozenset(
    {
        ErrorCode.INTERNAL,
        ErrorCode.REQUEST_THROTTLED,
        ErrorCode.REQUEST_TIMEOUT,
        ErrorCode.SESSION_TOO_MANY_IN_FLIGHT,
        ErrorCode.DEPENDENCY_UNAVAILABLE,
        ErrorCode.DATABASE_UNAVAILABLE,
        ErrorCode.STORAGE_UNAVAILABLE,
        ErrorCode.CHANNEL_LAYER_UNAVAILABLE,
    }
)


class Fetching(msgspec.Struct, frozen=True, kw_only=True):
    """The means of a download and its patience."""

    resolve: Resolve
    transfers: Transfers
    access: Access
    network_deadline_s: float
    backoff: Backoff = Backoff(base_s=1.0, cap_s=60.0)


class NetworkTrouble(Exception):
    """Links or files could not be had for as long as we are willing to try."""


class Tally:
    """How often a step was tried, readable also after it was interrupted."""

    def __init__(self) -> None:
        self.tries = 1


async def fetch_resources(
    resources: Sequence[ResourceRef], root: Path, fetching: Fetching, tally: Tally
) -> None:
    """Raises NetworkTrouble, ResourceMissing or ResourceRefused; repeating it does no harm."""
    # A path we will not write is refused before anything is downloaded.
    for resource in resources:
        local_parts(resource.local_path)
    for resource in resources:
        await _persist(resource, root, fetching, tally)


async def _persist(resource: ResourceRef, root: Path, fetching: Fetching, tally: Tally) -> None:
    """One file; the deadline counts from its first failure, so a long download has its time."""
    clock = asyncio.get_running_loop().time
    failing_since: float | None = None
    failures = mismatches = 0
    while True:
        try:
            await _fetch(resource, root, fetching)
        except SumMismatch as error:
            mismatches += 1
            if mismatches >= _MISMATCH_TRIES:
                raise ResourceRefused(f"{resource.local_path}: {error}") from error
            trouble: TransientError = error
        except TransientError as error:
            trouble = error
        else:
            return
        failures += 1
        tally.tries += 1
        now = clock()
        failing_since = now if failing_since is None else failing_since
        delay_s = fetching.backoff.delay_s(failures, trouble)
        if now + delay_s - failing_since > fetching.network_deadline_s:
            raise NetworkTrouble(f"{resource.local_path}: {trouble}") from trouble
        log.warning(
            "hook.resource_waits",
            local_path=resource.local_path,
            failures=failures,
            delay_s=round(delay_s, 2),
            error=str(trouble),
        )
        await asyncio.sleep(delay_s)


class SumMismatch(TransientError):
    """The bytes that came are not the bytes that were announced."""


async def _fetch(resource: ResourceRef, root: Path, fetching: Fetching) -> None:
    # A fresh link for each try: the last one may have expired meanwhile.
    link = await _resolve(resource, fetching.resolve)
    location = RemoteLocation(url=link.url or "", size=link.size)
    try:
        incoming = await run_blocking(IncomingFile, root, resource.local_path, fetching.access)
        with incoming:
            sums = _Sums(link.sha256)

            def take(block: bytes) -> None:
                sums.add(block)
                incoming.write(block)

            stored = await fetching.transfers.download(location, take)
            sums.check(stored)
            incoming.commit()
    except OSError as error:
        raise ResourceRefused(f"{resource.local_path}: {error.strerror}") from error
    log.info("hook.resource_fetched", local_path=resource.local_path, bytes=incoming.size)


async def _resolve(resource: ResourceRef, resolve: Resolve) -> ResolvedResource:
    try:
        async with asyncio.timeout(_RESOLVE_S):
            answer = await resolve([resource.remote_file])
    except TimeoutError as error:
        raise CoordinatorUnavailable("no link within a minute") from error
    if len(answer) != 1:
        raise CoordinatorUnavailable(f"{len(answer)} links for one resource")
    link = answer[0]
    if link.error in _TRANSIENT_CODES:
        raise CoordinatorUnavailable(f"no link: {link.error}")
    if link.error is ErrorCode.OBJECT_NOT_FOUND:
        raise ResourceMissing(f"{resource.local_path}: there is no such file")
    if link.error is not None or link.url is None:
        raise ResourceRefused(f"{resource.local_path}: refused with {link.error or 'no link'}")
    return link


class _Sums:
    """Running sums of one download. The length is checked by the download itself."""

    def __init__(self, sha256: str | None) -> None:
        self._expected = sha256.lower() if sha256 else None
        self._sha256 = hashlib.sha256() if self._expected else None
        self._md5 = hashlib.md5(usedforsecurity=False)

    def add(self, block: bytes) -> None:
        if self._sha256 is not None:
            self._sha256.update(block)
        else:
            self._md5.update(block)

    def check(self, stored: StoredSums) -> None:
        """The announced SHA-256 where there is one, else the store's MD5 where it is one."""
        if self._sha256 is not None:
            if self._sha256.hexdigest() != self._expected:
                raise SumMismatch("its SHA-256 is not the announced one")
        elif stored.md5 is not None and self._md5.hexdigest() != stored.md5:
            raise SumMismatch("its MD5 is not the store's")
