"""The agent's side of the fork server: start it, ask it for workers, hear of their ends.

One ForkServerLink per server process, on the event loop. Called by pool. Must be started from the
main thread: the server is told of the agent's death by the death of the thread that made it.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from nodeagent.errors import SpawnFailed
from nodeagent.failures import ExitReason, reason_of
from nodeagent.pool.fork_wire import (
    Begin,
    Exited,
    FromServer,
    NotSpawned,
    Reader,
    Ready,
    Spawn,
    Spawned,
    frame,
)

log = structlog.stdlib.get_logger(__name__)

_BOOT = (
    "import json, sys; sys.path.extend(json.loads(sys.argv[1]));"
    "from nodeagent.pool.fork_server import main; main()"
)
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_START_S = 60.0  # a cold disk and a busy host; a warm start takes 0.2 s
_END_S = 40.0  # above the server's own time for what will not die


class WorkerProcess:
    """One living worker, to be killed through a descriptor that never means another process."""

    def __init__(self, pid: int, handle: int) -> None:
        self.pid = pid
        self._handle = handle

    def kill(self) -> None:
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


Adopt: TypeAlias = Callable[[WorkerProcess], None]


class ForkServerLink:
    """A running fork server. `on_exit(pid, reason)` and `on_lost()` are called on the loop."""

    def __init__(
        self, on_exit: Callable[[int, ExitReason], None], on_lost: Callable[[], None]
    ) -> None:
        self._on_exit = on_exit
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._channel, self._theirs = socket.socketpair()
        self._channel.setblocking(False)
        self._reader = Reader[FromServer](self._channel, msgspec.msgpack.Decoder(FromServer))
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._spawning: dict[int, tuple[asyncio.Future[int], Adopt]] = {}
        self._sending = asyncio.Lock()
        self._number = 0
        self._is_closing = False

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def open(self, target: str, subtrees: Sequence[str]) -> None:
        """Raises SpawnFailed."""
        try:
            with self._theirs:
                self._process = _start_process(self._theirs.fileno())
        except OSError as error:
            self._channel.close()
            raise SpawnFailed(f"the fork server cannot be started: {error.strerror}") from error
        self._loop.add_reader(self._channel.fileno(), self._on_readable)
        try:
            async with asyncio.timeout(_START_S):
                await self._send(Begin(target, tuple(subtrees)))
                await self._ready
        except (TimeoutError, OSError, SpawnFailed) as error:
            await self.close()
            raise SpawnFailed(f"the fork server does not start: {error}") from error

    async def spawn(self, start: bytes, descriptors: Sequence[int], adopt: Adopt) -> int:
        """The pid. Raises SpawnFailed.

        `adopt` is called as soon as the worker exists, so always before its exit is reported.
        """
        self._number += 1
        number = self._number
        answer: asyncio.Future[int] = self._loop.create_future()
        self._spawning[number] = (answer, adopt)
        try:
            await self._send(Spawn(number, start, len(descriptors)), descriptors)
            return await answer
        except OSError as error:
            raise SpawnFailed(f"the fork server is gone: {error.strerror}") from error
        finally:
            self._spawning.pop(number, None)

    async def close(self) -> None:
        """End the server, and with it every worker."""
        self._is_closing = True
        self._close_channel()
        if self._process is None:
            return
        try:
            await asyncio.to_thread(self._process.wait, _END_S)
        except subprocess.TimeoutExpired:
            log.warning("fork_server.killed", pid=self._process.pid)
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    async def _send(self, message: Begin | Spawn, descriptors: Sequence[int] = ()) -> None:
        data = memoryview(frame(message))
        async with self._sending:
            while descriptors:
                try:
                    data = data[socket.send_fds(self._channel, [data], list(descriptors)) :]
                except BlockingIOError:
                    await self._writable()
                else:
                    descriptors = ()
            await self._loop.sock_sendall(self._channel, data)

    async def _writable(self) -> None:
        free: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_writer(self._channel.fileno(), _set, free)
        try:
            await free
        finally:
            self._loop.remove_writer(self._channel.fileno())

    def _on_readable(self) -> None:
        try:
            frames = self._reader.read()
        except BlockingIOError:
            return
        except OSError:
            frames = None
        if frames is None:
            self._lose()
            return
        for message, descriptors in frames:
            self._hear(message, descriptors)

    def _hear(self, message: FromServer, descriptors: list[int]) -> None:
        match message:
            case Ready():
                if not self._ready.done():
                    self._ready.set_result(None)
            case Spawned(number=number, pid=pid):
                process = WorkerProcess(pid, descriptors[0])
                answer, adopt = self._spawning.get(number, (None, None))
                if answer is not None and adopt is not None and not answer.done():
                    adopt(process)
                    answer.set_result(pid)
                else:
                    # Whoever asked has gone: a worker nobody knows must not live.
                    process.kill()
                    process.close()
            case NotSpawned(number=number, reason=reason):
                answer, _ = self._spawning.get(number, (None, None))
                if answer is not None and not answer.done():
                    answer.set_exception(SpawnFailed(reason))
            case Exited(pid=pid, status=status):
                self._on_exit(pid, reason_of(status))

    def _lose(self) -> None:
        self._close_channel()
        lost = SpawnFailed("the fork server has ended")
        waiting: list[asyncio.Future[None] | asyncio.Future[int]] = [self._ready]
        waiting += (answer for answer, _ in self._spawning.values())
        for answer in waiting:
            if not answer.done():
                answer.set_exception(lost)
                answer.exception()  # seen: somebody may no longer wait for it
        if not self._is_closing:
            self._on_lost()

    def _close_channel(self) -> None:
        if self._channel.fileno() >= 0:
            self._loop.remove_reader(self._channel.fileno())
            self._channel.close()


def _set(event: "asyncio.Future[None]") -> None:
    if not event.done():
        event.set_result(None)


def _start_process(channel_fd: int) -> "subprocess.Popen[bytes]":
    # Our own path, so that every way to install the package works without site and its hooks;
    # the environment stays bare, because workers inherit it.
    path = [entry for entry in (*sys.path, _PACKAGE_ROOT) if entry.startswith("/")]
    return subprocess.Popen(  # noqa: S603 - a fixed command line of our own
        [
            *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT),
            *(json.dumps(path), str(channel_fd), str(os.getpid())),
        ],
        env={"PATH": os.defpath},
        stdin=subprocess.DEVNULL,
        pass_fds=(channel_fd,),
        start_new_session=True,
        cwd="/",
    )
