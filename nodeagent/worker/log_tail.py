"""Live output: follow a command's two log files and hand chunks on while it runs.

Best effort by contract: nothing that goes wrong here may touch the task. Called by task_run when
the coordinator said that it takes live output.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from nodeagent.errors import AgentError, TransientError
from nodeagent.worker.comm import LogChunk, TaskOffer, WorkerComm
from nodeagent.worker.threads import run_blocking

log = structlog.stdlib.get_logger(__name__)

MAX_CHUNK_BYTES = 64 * 1024
_PERIOD_S = 1.0
# What is left when the command has ended is sent this long, then given up.
_LAST_WORDS_S = 20.0
_LAST_WORDS_BYTES = 1 << 20


class LogTail:
    """Follows the output of one attempt from `start` to `finish`."""

    def __init__(self, comm: WorkerComm, offer: TaskOffer, files: Mapping[str, Path]) -> None:
        self._comm = comm
        self._offer = offer
        self._files = files
        self._offsets = dict.fromkeys(files, 0)
        # Bytes of a piece that was sent and not answered. It is repeated as it was: the first one
        # may still be on its way, and must not replace a longer one at the same place.
        self._in_doubt: dict[str, int] = {}
        self._is_wanted = True
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin following; the files need not exist yet. A short task never gets a follower."""
        self._timer = asyncio.get_running_loop().call_later(_PERIOD_S, self._start_following)

    async def finish(self) -> None:
        """Send what is left within a few seconds and stop; never raises."""
        await self.stop()
        if not any(_size(path) > self._offsets[stream] for stream, path in self._files.items()):
            return
        budget = max(_LAST_WORDS_BYTES, int(self._offer.log_bytes_per_s * _LAST_WORDS_S))
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._send_some(budget)
        except (TimeoutError, TransientError):
            log.info("live_log.cut", attempt_id=self._offer.attempt_id)

    async def stop(self) -> None:
        """Stop at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    def _start_following(self) -> None:
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while self._is_wanted:
            try:
                await self._send_some(max(1, int(self._offer.log_bytes_per_s * _PERIOD_S)))
            except TransientError as error:
                log.debug("live_log.delayed", error=str(error))
            await asyncio.sleep(_PERIOD_S)

    async def _send_some(self, budget: int) -> None:
        """At most `budget` bytes of each stream; what a command prints faster lags here."""
        for stream, path in self._files.items():
            left = budget
            while left > 0 and self._is_wanted:
                size = self._in_doubt.get(stream) or min(left, MAX_CHUNK_BYTES)
                data = await run_blocking(_read_at, path, self._offsets[stream], size)
                if not data or not await self._send(stream, data):
                    break
                left -= len(data)

    async def _send(self, stream: str, data: bytes) -> bool:
        chunk = LogChunk(stream, self._offsets[stream], data)
        self._in_doubt[stream] = len(data)
        try:
            await self._comm.log_chunk(self._offer, chunk)
        except TransientError:
            raise
        except AgentError as error:
            # Refused, or the attempt is no longer ours: the report path will find out why.
            log.info("live_log.stopped", attempt_id=self._offer.attempt_id, error=str(error))
            self._is_wanted = False
            return False
        del self._in_doubt[stream]
        self._offsets[stream] += len(data)
        return True


def _size(path: Path) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _read_at(path: Path, offset: int, size: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
