"""The launcher process: starts one command at a time and leaves nothing of it behind.

Started by nodeagent.worker.launcher with `python -I -S`, or forked by a managed worker: it imports
the standard library only and costs a few megabytes. It is a subreaper; when its worker dies (end
of the channel, or the parent-death signal) it kills the whole tree and ends. Frames: 4-byte
length, then JSON; the two descriptors of a command's output may come with a frame.
"""

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time

from nodeagent.worker.command_start import spawn
from nodeagent.worker.confinement import Confinement, OomMark, confine, from_json
from nodeagent.worker.passed_descriptors import receive
from nodeagent.worker.process_tree import (
    Reaped,
    become_subreaper,
    end_descendants,
    hide_memory,
    read_signals,
    reap,
    receive_signals,
    signal_on_parent_death,
)

# A process in uninterruptible sleep may ignore SIGKILL for ever; the worker must hear about it.
UNKILLABLE_AFTER_S = 60.0
# A command that ends sooner is announced and reported in one frame, which spares the worker a
# wake-up; of one that kills its launcher within that time the worker knows no pid.
_ANNOUNCE_AFTER_S = 0.02
_HEADER = struct.Struct(">I")
# As json.dumps would write it, at a fifth of the price.
_EXITED = (
    b'{"event":"exited","status":%d,"max_rss_kib":%d,"cpu_s":%.6f,"leftovers":%d,"survivors":%d}'
)
_READ_BYTES = 1 << 16
_IGNORED = (signal.SIGINT, signal.SIGHUP)


class Launcher:
    """State of the launcher: its channel and the command it watches, if any."""

    def __init__(self, channel: socket.socket, mark: OomMark | None) -> None:
        self._channel = channel
        self._mark = mark if mark is not None else contextlib.nullcontext()
        self._incoming = bytearray()
        self._descriptors: list[int] = []
        self._command: int | None = None
        self._announce_at: float | None = None
        self._reaped: dict[int, Reaped] = {}
        self._orphans_cpu_s = 0.0
        self._shared_env: object = {}

    def read(self) -> bool:
        """Take what the worker sent; false at the end of the channel."""
        try:
            data, descriptors = receive(self._channel, _READ_BYTES, 2)
        except ConnectionResetError:
            # A worker killed with frames unread resets the channel instead of closing it.
            return False
        if not data:
            return False
        self._descriptors += descriptors
        self._incoming += data
        while len(self._incoming) >= _HEADER.size:
            (size,) = _HEADER.unpack_from(self._incoming)
            end = _HEADER.size + size
            if len(self._incoming) < end:
                break
            request: dict[str, object] = json.loads(self._incoming[_HEADER.size : end])
            del self._incoming[:end]
            self._obey(request)
        return True

    def patience_s(self) -> float | None:
        """How long to wait for events before `announce` is due."""
        if self._announce_at is None:
            return None
        return max(0.0, self._announce_at - time.monotonic())

    def announce(self) -> None:
        """Say the pid of a command that is still running after a moment."""
        if self._announce_at is not None and time.monotonic() >= self._announce_at:
            self._announce_at = None
            self._say(event="started", pid=self._command)

    def collect(self) -> None:
        """Reap; when the command itself has ended, end the rest of its tree and say so."""
        has_children = reap(self._reaped)
        if self._command is None or self._command not in self._reaped:
            # Of orphans that ended by themselves only the processor time is of interest.
            self._orphans_cpu_s += sum(orphan.cpu_s for orphan in self._reaped.values())
            self._reaped.clear()
            return
        end = self._reaped[self._command]
        killed = survivors = 0
        if has_children:
            killed, survivors = end_descendants(self._reaped, timeout_s=UNKILLABLE_AFTER_S)
        cpu_s = self._orphans_cpu_s + sum(each.cpu_s for each in self._reaped.values())
        self._command = self._announce_at = None
        self._orphans_cpu_s = 0.0
        self._reaped.clear()
        _send(self._channel, _EXITED % (end.status, end.max_rss_kib, cpu_s, killed, survivors))

    def end(self) -> None:
        """Kill whatever is there; called once, on the way out."""
        end_descendants(self._reaped, timeout_s=UNKILLABLE_AFTER_S)

    def _obey(self, request: dict[str, object]) -> None:
        op = request["op"]
        if op == "run":
            self._run(request)
        elif self._command is not None:
            # The leader is unreaped here, so its group id cannot have been reused; what left the
            # group is ended by `collect` once the leader is gone.
            signum = signal.SIGTERM if op == "terminate" else signal.SIGKILL
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._command, signum)

    def _run(self, request: dict[str, object]) -> None:
        outputs, self._descriptors = self._descriptors, []
        try:
            self._shared_env = request.get("shared_env", self._shared_env)
            with self._mark:
                self._command = spawn(request, self._shared_env, outputs)
        except (OSError, TypeError, ValueError) as error:
            self._say(event="refused", reason=f"{type(error).__name__}: {error}")
        else:
            self._announce_at = time.monotonic() + _ANNOUNCE_AFTER_S
        finally:
            for fd in outputs:
                os.close(fd)

    def _say(self, **message: object) -> None:
        say(self._channel, **message)


def say(channel: socket.socket, **message: object) -> None:
    """One frame to the worker."""
    _send(channel, json.dumps(message).encode())


def _send(channel: socket.socket, body: bytes) -> None:
    try:
        channel.sendall(_HEADER.pack(len(body)) + body)
    except OSError:
        # The worker is gone; the next read sees the end of the channel and cleans up.
        return


def main() -> None:
    """As a program. argv: package root, channel descriptor, pid of the worker, confinement."""
    confinement = from_json(json.loads(sys.argv[4])) if len(sys.argv) > 4 else None
    serve(int(sys.argv[2]), int(sys.argv[3]), confinement)


def serve(channel_fd: int, worker_pid: int, confinement: Confinement | None = None) -> None:
    """Serve one worker until it goes away."""
    channel = socket.socket(fileno=channel_fd)
    channel.set_inheritable(False)
    mark: OomMark | None = None
    if confinement is not None:
        try:
            mark = OomMark()
            confine(confinement)
        except OSError as error:
            say(channel, event="broken", reason=f"{type(error).__name__}: {error}")
            return
    become_subreaper()
    hide_memory()
    # Not SIGTERM: the end of the channel tells us anyway, unless the command has stopped us, and
    # only SIGCONT gets a stopped process going again. After `confine`, which clears it.
    signal_on_parent_death(signal.SIGCONT)
    launcher = Launcher(channel, mark)
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)
    signals = receive_signals((signal.SIGCHLD, signal.SIGCONT, signal.SIGTERM))
    if confinement is not None:
        say(channel, event="ready")
    _serve(launcher, channel, signals, worker_pid=worker_pid)
    launcher.end()


def _serve(launcher: Launcher, channel: socket.socket, signals: int, *, worker_pid: int) -> None:
    with select.epoll() as waiting:
        waiting.register(channel, select.EPOLLIN)
        waiting.register(signals, select.EPOLLIN)
        # Checked before the first wait too: the worker may have died before its death was watched.
        while os.getppid() == worker_pid:
            for fd, _ in waiting.poll(launcher.patience_s()):
                if fd == signals:
                    if signal.SIGTERM in read_signals(signals):
                        return
                    launcher.collect()
                elif not launcher.read():
                    return
            launcher.announce()
