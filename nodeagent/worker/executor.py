"""Run one command to its end: time limit, stop requests, signals in the right order.

Pure policy over a launcher: SIGTERM to the group, a grace period, SIGKILL to everything. Called
by task_run, which decides what the end means for the coordinator.
"""

import asyncio
from enum import Enum
from typing import Protocol

import msgspec

from nodeagent.worker.control import TaskControl
from nodeagent.worker.launcher import Command, CommandExit

# What existing workers give a command between SIGTERM and SIGKILL when its time is up.
TIMEOUT_GRACE_S = 10.0
# A cancelled or revoked run gets less: somebody is waiting for the slot.
STOP_GRACE_S = 5.0


class CommandRunner(Protocol):
    """What the executor needs of a launcher."""

    async def start(self, command: Command) -> None: ...
    async def wait(self) -> CommandExit: ...
    async def terminate(self) -> None: ...
    async def kill(self) -> None: ...
    async def wait_killed(self, waiting: "asyncio.Future[CommandExit]") -> CommandExit: ...


class EndCause(Enum):
    """Who ended the command."""

    EXITED = "exited"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"


class CommandEnd(msgspec.Struct, frozen=True):
    """How a run ended."""

    cause: EndCause
    exit: CommandExit


async def run_command(
    runner: CommandRunner, command: Command, *, timeout_s: float, control: TaskControl
) -> CommandEnd:
    """Raises SpawnRefused if the command could not be started; never leaves it running."""
    await runner.start(command)
    ending = _Ending(runner, control, timeout_s)
    try:
        # In the calling task: a command that ends by itself costs no task of its own (50 us).
        exit_ = await runner.wait()
    except asyncio.CancelledError:
        # The worker itself is being torn down: no command may outlive the answer.
        await ending.close(None)
        await runner.kill()
        await runner.wait_killed(asyncio.create_task(_wait(runner)))
        raise
    except BaseException:
        await ending.close(None)
        raise
    await ending.close(exit_)
    return CommandEnd(ending.cause, exit_)


async def _wait(runner: CommandRunner) -> CommandExit:
    return await runner.wait()


class _Ending:
    """Ends the command when its time is up or it is told to stop, beside the one who waits."""

    def __init__(self, runner: CommandRunner, control: TaskControl, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.cause = EndCause.EXITED
        self._runner = runner
        self._control = control
        self._ended: asyncio.Future[CommandExit] = loop.create_future()
        self._work: asyncio.Task[None] | None = None
        self._timer = loop.call_later(timeout_s, self._begin, EndCause.TIMED_OUT)
        control.watch_stopped(self._on_stop)

    async def close(self, exit_: CommandExit | None) -> None:
        """The command has ended, or nobody waits for it any more."""
        self._timer.cancel()
        self._control.unwatch_stopped(self._on_stop)
        if exit_ is None:
            self._ended.cancel()
        else:
            self._ended.set_result(exit_)
        if self._work is not None:
            await asyncio.wait({self._work})
            if not self._work.cancelled():
                self._work.result()

    def _on_stop(self) -> None:
        self._begin(EndCause.STOPPED)

    def _begin(self, cause: EndCause) -> None:
        if self._work is None:
            self.cause = cause
            self._work = asyncio.get_running_loop().create_task(self._end_gently())

    async def _end_gently(self) -> None:
        is_late = self.cause is EndCause.TIMED_OUT
        grace_s = TIMEOUT_GRACE_S if is_late else STOP_GRACE_S
        await self._runner.terminate()
        urgent = asyncio.create_task(self._control.wait_urgent())
        try:
            reasons: set[asyncio.Future[CommandExit] | asyncio.Future[None]] = {self._ended, urgent}
            await asyncio.wait(reasons, timeout=grace_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            urgent.cancel()
        if not self._ended.done():
            await self._runner.kill()
            await self._runner.wait_killed(self._ended)
