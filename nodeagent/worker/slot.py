"""The slot of a managed worker: runs commands inside its cgroups, with limits and evidence.

A CommandRunner over a launcher that is confined to the slot. Nothing of an attempt survives it:
what the launcher does not end, the cgroup does. Made by the main function of a managed worker,
whose first act must be `prepare_launcher`.
"""

import asyncio
import os
from pathlib import Path

import msgspec

from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import LimitsUnenforceable
from nodeagent.pool.attempt_group import NO_LIMITS, AttemptGroup, Evidence
from nodeagent.pool.launch import SlotSetup
from nodeagent.worker.confinement import Confinement
from nodeagent.worker.launcher import Command, CommandExit, Launcher
from nodeagent.worker.launcher_process import StartedLauncher, fork_launcher
from nodeagent.worker.slot_space import OUTPUT_MODE

_OUTPUT = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare_launcher(setup: SlotSetup) -> StartedLauncher:
    """Fork the launcher. Before any thread, socket, event loop or shared memory exists."""
    directories = AttemptGroup(setup.groups)
    try:
        return fork_launcher(setup.confinement(directories.directories()))
    finally:
        directories.close()


class SlotRunner:
    """Runs one command at a time; recovers from a launcher that its command has killed."""

    def __init__(self, setup: SlotSetup, first: StartedLauncher | None = None) -> None:
        self._setup = setup
        self._group = AttemptGroup(setup.groups)
        self._launcher = Launcher(self._confinement, first=first, before_sweep=self._sweep)
        self._survivors = 0

    async def open(self) -> None:
        """Wait until the launcher is confined. Raises HostUnusable."""
        await self._launcher.open()

    def trouble(self, limits: ResourceLimits | None = None) -> str | None:
        """Why these limits, or the suite's, cannot be enforced here."""
        try:
            self._group.check(limits or self._setup.limits or NO_LIMITS)
        except LimitsUnenforceable as error:
            return str(error)
        return None

    async def start(self, command: Command) -> None:
        """Raises LimitsUnenforceable or HostUnusable; whatever else goes wrong, `wait` says."""
        self._survivors = 0
        await self._launcher.open()
        self._group.begin(command.limits or self._setup.limits or NO_LIMITS, self._launcher.pid)
        descriptors: list[int] = []
        try:
            self._open_outputs(command, descriptors)
            await self._launcher.start(command, descriptors)
        finally:
            for fd in descriptors:
                os.close(fd)

    async def wait(self) -> CommandExit:
        """The end of the command and of everything it started. Raises SpawnRefused."""
        end = await self._launcher.wait()
        leftovers = self._group.leftovers(self._launcher.pid)
        if leftovers:
            pid = self._launcher.pid
            self._survivors += await asyncio.to_thread(self._group.end_leftovers, pid)
        return _with_evidence(
            end, self._group.finish(end.status), leftovers=leftovers, survivors=self._survivors
        )

    async def terminate(self) -> None:
        """SIGTERM to the command's process group."""
        await self._launcher.terminate()

    async def kill(self) -> None:
        """SIGKILL to the whole group, the launcher included; `wait` then gets a new one."""
        if self._setup.groups.groups:
            await asyncio.to_thread(self._group.kill)
        else:
            await self._launcher.kill()

    async def wait_killed(self, waiting: "asyncio.Future[CommandExit]") -> CommandExit:
        """Wait for the end after `kill`."""
        return await self._launcher.wait_killed(waiting)

    async def close(self) -> None:
        """End the launcher and everything in the slot."""
        await self._launcher.close()
        self._group.close()

    def _confinement(self) -> Confinement:
        return self._setup.confinement(self._group.directories())

    def _sweep(self) -> None:
        self._survivors += self._group.empty()

    def _open_outputs(self, command: Command, into: list[int]) -> None:
        """Opened here, so that a command reaches its own output and not our directory."""
        if command.stdout is not None and command.stderr is not None:
            into.append(self._open_output(command.stdout))
            into.append(self._open_output(command.stderr))

    def _open_output(self, path: Path) -> int:
        # Always a description of its own: its flags, locks and leases end with the attempt.
        try:
            return os.open(path, _OUTPUT)
        except FileNotFoundError:
            fd = os.open(path, _OUTPUT | os.O_CREAT | os.O_EXCL, OUTPUT_MODE)
        if self._setup.uid is not None and self._setup.gid is not None:
            # A command may open /dev/stdout anew, which the kernel checks against the owner.
            os.fchown(fd, self._setup.uid, self._setup.gid)
        return fd


def _with_evidence(
    end: CommandExit, evidence: Evidence, *, leftovers: int, survivors: int
) -> CommandExit:
    return msgspec.structs.replace(
        end,
        # The kernel's figure for a single process starts from its launcher's size.
        max_rss_kib=(evidence.peak_memory_bytes or end.max_rss_kib << 10) >> 10,
        leftovers=end.leftovers + leftovers,
        survivors=max(end.survivors, survivors),
        was_oom=evidence.was_oom,
        peak_memory_bytes=evidence.peak_memory_bytes,
        peak_pids=evidence.peak_pids,
    )
