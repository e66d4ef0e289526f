"""The worker's side of the launcher: start a command, signal it, wait for its end.

Owns the launcher process and survives its death: the worker is a subreaper too, so what a killed
launcher leaves behind is adopted, killed and reported with the status the kernel gave it. A process
that has other children as well puts a keeper in between, which does that in its stead.
Called by executor; must be started from the main thread (parent-death signals are per thread).
"""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import HostUnusable, SpawnRefused
from nodeagent.worker.confinement import Confinement
from nodeagent.worker.launcher_channel import Channel, ChannelClosed, Message
from nodeagent.worker.launcher_process import (
    LauncherProcess,
    StartedLauncher,
    start_below_keeper,
    start_program,
)
from nodeagent.worker.process_tree import Reaped, Sweep, become_subreaper, end_descendants

log = structlog.stdlib.get_logger(__name__)

_START_TRIES = 3
# Above the launcher's own limit for unkillable processes, so that its answer comes first.
_SILENT_LAUNCHER_S = 75.0
_SWEEP_S = 10.0


class Command(msgspec.Struct, frozen=True):
    """What to run: arguments for /usr/bin/env, its environment, where output goes.

    `env` wins over `shared_env`, which a launcher is told once as long as it is the same object.
    `limits` are put into force by the slot of a managed worker; nobody else sets any.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    stdout: Path | None = None
    stderr: Path | None = None
    limits: ResourceLimits | None = None
    shared_env: Mapping[str, str] = {}


class CommandExit(msgspec.Struct, frozen=True):
    """The end of a command: raw wait status and what had to be cleaned up after it.

    `was_oom` is proven by the kernel's own count; peaks are None where nothing counts them.
    """

    status: int
    max_rss_kib: int = 0
    cpu_s: float = 0.0
    leftovers: int = 0
    survivors: int = 0
    was_oom: bool = False
    peak_memory_bytes: int | None = None
    peak_pids: int | None = None


class Launcher:
    """One launcher process, restarted when it was killed; runs one command at a time.

    `first` is one that was started earlier; `before_sweep` ends what a cgroup knows of a lost one.
    `is_kept`: below a keeper, for a process with children that are not ours to kill or to reap.
    """

    def __init__(
        self,
        confinement: Callable[[], Confinement] | None = None,
        *,
        first: StartedLauncher | None = None,
        before_sweep: Callable[[], None] | None = None,
        is_kept: bool = False,
    ) -> None:
        self._is_kept = is_kept
        self._confinement = confinement
        self._first = first
        self._before_sweep = before_sweep
        self._process: LauncherProcess | None = None
        self._channel: Channel | None = None
        self._pid = 0
        self._told_env: Mapping[str, str] | None = None
        if not is_kept:
            become_subreaper()

    @property
    def pid(self) -> int:
        """Of the launcher itself; 0 while there is none."""
        return self._process.pid if self._process is not None else 0

    async def open(self) -> None:
        """Have a launcher; a confined one has then given up its rights. Raises HostUnusable."""
        await self._ensure_process()

    async def start(self, command: Command, descriptors: Sequence[int] = ()) -> None:
        """Hand `command` over; `wait` says what became of it. Raises HostUnusable.

        A launcher lost after it was told counts as the end of the command: its first act may have
        been to kill the launcher, and it must not run a second time.
        """
        for _ in range(_START_TRIES):
            channel = await self._ensure_process()
            try:
                await channel.send(self._request(command, descriptors), descriptors)
            except ChannelClosed:
                # Writing failed, so it was dead already and has not seen the whole request.
                await self._recover()
            else:
                self._told_env = command.shared_env
                return
        raise HostUnusable("the launcher process dies before it can be given a command")

    def _request(self, command: Command, descriptors: Sequence[int]) -> dict[str, object]:
        request: dict[str, object] = {
            "op": "run",
            "argv": list(command.argv),
            "env": dict(command.env),
        }
        if command.shared_env is not self._told_env:
            request["shared_env"] = dict(command.shared_env)
        if not descriptors:
            request["stdout"] = str(command.stdout) if command.stdout else None
            request["stderr"] = str(command.stderr) if command.stderr else None
        return request

    async def wait(self) -> CommandExit:
        """The end of the running command, whatever became of the launcher.

        Raises SpawnRefused if the kernel would not start it.
        """
        try:
            while True:
                answer = await self._receive()
                if answer.event == "started":
                    self._pid = answer.pid
                elif answer.event == "refused":
                    raise SpawnRefused(answer.reason)
                else:
                    self._pid = 0
                    return CommandExit(
                        answer.status,
                        answer.max_rss_kib,
                        answer.cpu_s,
                        answer.leftovers,
                        answer.survivors,
                    )
        except ChannelClosed:
            log.warning("launcher.lost", pid=self._pid)
            return await self._recover()

    async def terminate(self) -> None:
        """SIGTERM to the command's process group."""
        await self._signal("terminate")

    async def kill(self) -> None:
        """SIGKILL to the command's group; the rest of its tree follows when the leader is gone."""
        await self._signal("kill")

    async def wait_killed(self, waiting: "asyncio.Future[CommandExit]") -> CommandExit:
        """Wait for the end after `kill`; a launcher that stays silent is killed as well."""
        done, _ = await asyncio.wait({waiting}, timeout=_SILENT_LAUNCHER_S)
        if not done and self._process is not None:
            self._process.kill()
        return await waiting

    async def close(self) -> None:
        """End the launcher and with it everything it runs."""
        if self._process is None and self._first is not None:
            self._adopt(self._first)
        if self._process is not None:
            await self._recover()

    async def _ensure_process(self) -> Channel:
        if self._process is not None:
            if self._channel is not None and not self._channel.is_over:
                return self._channel
            await self._recover()
        first, self._first = self._first, None
        confinement = self._confinement() if self._confinement is not None else None
        channel = self._adopt(first if first is not None else self._start(confinement))
        if confinement is not None:
            await self._hear_ready(channel)
        return channel

    def _start(self, confinement: Confinement | None) -> StartedLauncher:
        return start_below_keeper() if self._is_kept else start_program(confinement)

    def _adopt(self, started: StartedLauncher) -> Channel:
        self._process = started.process
        self._told_env = None
        self._channel = Channel(started.channel)
        return self._channel

    async def _hear_ready(self, channel: Channel) -> None:
        reason = "it ended at once"
        try:
            async with asyncio.timeout(_SILENT_LAUNCHER_S):
                answer = await channel.receive()
            if answer.event == "ready":
                return
            reason = answer.reason
        except (ChannelClosed, TimeoutError):
            pass
        await self._recover()
        raise HostUnusable(f"a launcher cannot be confined: {reason}")

    async def _receive(self) -> Message:
        if self._channel is None:
            raise ChannelClosed
        return await self._channel.receive()

    async def _signal(self, op: str) -> None:
        try:
            if self._channel is not None:
                await self._channel.send({"op": op})
        except ChannelClosed:
            # `wait` sees the same loss and cleans up.
            return
        if self._process is not None:
            # The command may have stopped its launcher; this does no harm to one that runs.
            self._process.signal(signal.SIGCONT)

    async def _recover(self) -> CommandExit:
        """Close the channel, give the launcher time to clean up, then sweep what is left."""
        process, self._process = self._process, None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        reaped: dict[int, Reaped] = {}
        await asyncio.to_thread(_end, process, self._before_sweep)
        survivors = 0
        if not self._is_kept:
            survivors = (await asyncio.to_thread(_sweep, reaped)).survivors
        end = reaped.get(self._pid, Reaped(signal.SIGKILL, 0, 0.0))
        self._pid = 0
        cpu_s = round(sum(each.cpu_s for each in reaped.values()), 6)
        return CommandExit(end.status, end.max_rss_kib, cpu_s, survivors=survivors)


def _end(process: LauncherProcess | None, before_sweep: Callable[[], None] | None) -> None:
    if before_sweep is not None:
        before_sweep()
    if process is not None and not process.wait(_SWEEP_S):
        process.kill()
        process.wait(None)


def _sweep(reaped: dict[int, Reaped]) -> Sweep:
    return end_descendants(reaped, timeout_s=_SWEEP_S)
