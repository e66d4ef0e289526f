"""The fork server: parent of all workers, so that the agent forks nothing and 256 start in seconds.

A lean program that imports the worker's modules once, opens nothing, and forks on request. When
the agent's end of the socket closes it kills every worker, everything they started and the slots'
cgroups, and ends. Started by nodeagent.pool.process; frames are in nodeagent.pool.fork_wire.
"""

import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import msgspec

from nodeagent.pool.fork_wire import (
    Begin,
    Exited,
    FromServer,
    NotSpawned,
    Reader,
    Ready,
    Spawn,
    Spawned,
    ToServer,
    frame,
    send_all,
)
from nodeagent.pool.slots import end_subtrees
from nodeagent.worker.process_tree import (
    Reaped,
    become_subreaper,
    end_descendants,
    hide_memory,
    signal_on_parent_death,
)

# What is left after a worker's death dies at once, or is stuck in the kernel: the agent, which
# watches the cgroup for longer, then finds out.
_STRANGERS_S = 5.0
_LAST_SWEEP_S = 30.0
_WAKE_BYTES = 1 << 12

WorkerMain = Callable[[bytes, list[int]], int]


class ForkServer:
    """The server's state: its workers by pid."""

    def __init__(self, channel: socket.socket, wake_read: int, wake_write: int) -> None:
        self._channel = channel
        self._wake_read = wake_read
        self._wake_write = wake_write
        self._reader = Reader[ToServer](channel, msgspec.msgpack.Decoder(ToServer))
        self._workers: set[int] = set()
        self._subtrees: tuple[str, ...] = ()
        self._main: WorkerMain | None = None

    def serve(self, agent_pid: int) -> None:
        """Until the agent is gone."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while os.getppid() == agent_pid:
                for key, _ in selector.select():
                    if key.fd == self._wake_read:
                        os.read(self._wake_read, _WAKE_BYTES)
                        self._collect()
                    elif not self._read(selector):
                        return

    def end(self) -> None:
        """Kill everybody; called once, on the way out."""
        # Workers first: one that lives would answer the loss of its launcher with a new one.
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)
        end_subtrees(self._subtrees, within_s=_LAST_SWEEP_S)
        end_descendants({}, timeout_s=_LAST_SWEEP_S)
        end_subtrees(self._subtrees, within_s=_LAST_SWEEP_S)

    def _read(self, selector: selectors.BaseSelector) -> bool:
        try:
            frames = self._reader.read()
        except ConnectionError:
            return False
        if frames is None:
            return False
        for message, descriptors in frames:
            if isinstance(message, Begin):
                self._begin(message)
            elif isinstance(message, Spawn):
                self._spawn(message, descriptors, selector)
        return True

    def _begin(self, message: Begin) -> None:
        self._subtrees = message.subtrees
        module, _, name = message.target.partition(":")
        self._main = getattr(importlib.import_module(module), name)
        # Objects made so far are never looked at again by the collector, so their pages stay
        # shared between all workers.
        gc.collect()
        gc.freeze()
        self._say(Ready())

    def _spawn(
        self, message: Spawn, descriptors: list[int], selector: selectors.BaseSelector
    ) -> None:
        assert self._main is not None
        try:
            pid = os.fork()
        except OSError as error:
            self._say(NotSpawned(message.number, f"fork: {error.strerror}"))
        else:
            if pid == 0:
                self._leave(selector)
                _be_worker(self._main, message.start, descriptors)
            self._workers.add(pid)
            handle = os.pidfd_open(pid)
            self._say(Spawned(message.number, pid), [handle])
            os.close(handle)
        finally:
            for fd in descriptors:
                os.close(fd)

    def _leave(self, selector: selectors.BaseSelector) -> None:
        """In a child: nothing of the server stays open."""
        signal.set_wakeup_fd(-1)
        selector.close()
        self._channel.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _collect(self) -> None:
        """Report the dead, after ending what they left behind."""
        reaped: dict[int, Reaped] = {}
        end_descendants(reaped, timeout_s=_STRANGERS_S, spared=self._workers)
        for pid, end in reaped.items():
            if pid in self._workers:
                self._workers.discard(pid)
                self._say(Exited(pid, end.status, end.max_rss_kib, end.cpu_s))

    def _say(self, message: FromServer, descriptors: list[int] | None = None) -> None:
        try:
            send_all(self._channel, frame(message), descriptors or [])
        except OSError:
            # The agent is gone; the next read sees the end of the channel and cleans up.
            return


def _be_worker(worker_main: WorkerMain, start: bytes, descriptors: list[int]) -> NoReturn:
    """The life of a worker; never returns into the server's code."""
    status = 70
    try:
        server_pid = os.getppid()
        for signum in (signal.SIGCHLD, signal.SIGCONT, signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_DFL)
        os.setsid()
        signal_on_parent_death(signal.SIGKILL)
        if os.getppid() == server_pid:
            status = worker_main(start, descriptors)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - the last frame of a forked process
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """argv: channel descriptor, pid of the agent."""
    channel = socket.socket(fileno=int(sys.argv[-2]))
    channel.set_inheritable(False)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    become_subreaper()
    hide_memory()
    # Gets a stopped server going again, to see the end of its channel.
    signal_on_parent_death(signal.SIGCONT)
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # The agent decides; a signal for the whole process group is meant for it.
        signal.signal(signum, signal.SIG_IGN)
    for signum in (signal.SIGCHLD, signal.SIGCONT):
        signal.signal(signum, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    server = ForkServer(channel, wake_read, wake_write)
    try:
        server.serve(int(sys.argv[-1]))
    finally:
        server.end()
