"""One environment hook from resources to result: preparation before the first task, cleanup after
the last.

Network trouble is tried again up to a deadline; a command that failed is not. Cancelling ends
whatever is under way. Called by the agent's shell and by cleanup; results go to the core.
"""

import asyncio
import os
import time
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec
import structlog

from mitosis_protocol.specs import EnvHookSpec
from nodeagent.errors import AgentError, TaskError
from nodeagent.hooks.command import HookCommand, run_hook_command
from nodeagent.hooks.command_main import HookEnd
from nodeagent.hooks.context import HookContext, Surroundings, hook_environment
from nodeagent.hooks.directories import Sandbox, SuiteDirs, file_access, make_suite_dirs
from nodeagent.hooks.resources import Fetching, NetworkTrouble, Resolve, Tally, fetch_resources
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers

log = structlog.stdlib.get_logger(__name__)

HookKind: TypeAlias = Literal["ok", "command", "timeout", "network", "cancelled"]

STDERR_TAIL_BYTES: Final = 4096
NETWORK_DEADLINE_S: Final = 3600.0  # of failures in a row; DESIGN 4.2
# Others wait for the host, and there may be staged files: a cleanup is less patient.
CLEANUP_NETWORK_DEADLINE_S: Final = 300.0
_SIGNAL_BASE: Final = 128  # how a shell shows the signal that ended a command


class HookResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a hook ended. `stderr_tail` says why also when no command was run."""

    kind: HookKind
    exit_code: int | None = None
    stderr_tail: str = ""
    seconds: float = 0.0
    tries: int = 1
    survivors: int = 0  # processes that would not die: the host is not fit for more work

    @property
    def is_ok(self) -> bool:
        return self.kind == "ok"


class HookCancelled(Exception):
    """Never leaves this module."""


class HookHost(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine gives to hooks.

    `resolve` raises a TransientError to be asked again, any other AgentError to give up; None
    when there is no coordinator to ask: then files fetched by an earlier `stage` have to do.
    """

    data_dir: Path
    transfers: Transfers
    resolve: Resolve | None
    marker: str
    env: Mapping[str, str] = {}
    sandbox: Sandbox | None = None
    cgroup_procs: Sequence[str] = ()
    network_deadline_s: float = NETWORK_DEADLINE_S


async def run_hook(
    hook: EnvHookSpec,
    context: HookContext,
    host: HookHost,
    cancel: asyncio.Event | None = None,
) -> HookResult:
    """Resources, then the command. Raises nothing but asyncio.CancelledError."""
    signal = cancel or asyncio.Event()
    tally = Tally()
    started = time.monotonic()
    result = await _guarded(_fetch_and_run(hook, context, host, signal, tally))
    result = msgspec.structs.replace(
        result, seconds=round(time.monotonic() - started, 3), tries=tally.tries
    )
    _tell(result, context)
    return result


async def stage(
    hook: EnvHookSpec,
    context: HookContext,
    host: HookHost,
    cancel: asyncio.Event | None = None,
) -> HookResult:
    """Fetch the files of a cleanup hook ahead, so that it can be run without a coordinator."""
    signal = cancel or asyncio.Event()
    tally = Tally()
    result = await _guarded(_fetch_only(hook, context, host, signal, tally))
    return msgspec.structs.replace(result, tries=tally.tries)


async def _guarded(work: Coroutine[Any, Any, HookResult]) -> HookResult:
    try:
        return await work
    except HookCancelled:
        return HookResult(kind="cancelled")
    except NetworkTrouble as error:
        return HookResult(kind="network", stderr_tail=text_tail(str(error).encode()))
    except (AgentError, OSError) as error:
        # A missing file, a wrong sum, a full disk: nothing that a second try here would cure.
        return HookResult(kind="command", stderr_tail=text_tail(_reason(error).encode()))


async def _fetch_and_run(
    hook: EnvHookSpec,
    context: HookContext,
    host: HookHost,
    cancel: asyncio.Event,
    tally: Tally,
) -> HookResult:
    dirs = await _bring(hook, context, host, cancel, tally)
    if cancel.is_set():
        raise HookCancelled
    around = Surroundings(
        inherited=host.env,
        marker=host.marker,
        directory=dirs.shared,
        is_sandboxed=host.sandbox is not None,
    )
    command = HookCommand(
        argv=hook.args,
        env=hook_environment(hook, context, around),
        timeout_s=hook.timeout_s,
        phase=context.phase,
        dirs=dirs,
        sandbox=host.sandbox,
        cgroup_procs=host.cgroup_procs,
    )
    end = await run_hook_command(command, cancel)
    return await run_blocking(_judge, end, dirs.output(context.phase, "stderr"))


async def _fetch_only(
    hook: EnvHookSpec,
    context: HookContext,
    host: HookHost,
    cancel: asyncio.Event,
    tally: Tally,
) -> HookResult:
    await _bring(hook, context, host, cancel, tally)
    return HookResult(kind="ok")


async def _bring(
    hook: EnvHookSpec,
    context: HookContext,
    host: HookHost,
    cancel: asyncio.Event,
    tally: Tally,
) -> SuiteDirs:
    """The suite's directory with the hook's files in it."""
    dirs = await run_blocking(make_suite_dirs, host.data_dir, context.suite_uuid, host.sandbox)
    if not hook.resources:
        return dirs
    try:
        await _unless(cancel, _fetch(hook, dirs.shared, _patient(host, context), tally))
    except (NetworkTrouble, TaskError):
        # What was staged at preparation is better than a host that stays dirty; a debt of an
        # earlier life may have no engagement any more that could ask for links.
        if context.phase != "cleanup" or not await run_blocking(_are_there, hook, dirs.shared):
            raise
        log.warning("hook.uses_staged_files", suite_uuid=str(context.suite_uuid))
    return dirs


async def _unless(cancel: asyncio.Event, step: Coroutine[Any, Any, None]) -> None:
    """Run `step`; on `cancel` end it first, then raise HookCancelled."""
    work = asyncio.ensure_future(step)
    alarm = asyncio.ensure_future(cancel.wait())
    try:
        await asyncio.wait({work, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
    finally:
        alarm.cancel()
        work.cancel()
        # What it was doing has to be over (a file closed, its temporary name gone).
        await asyncio.gather(work, return_exceptions=True)
    raise HookCancelled


async def _fetch(hook: EnvHookSpec, root: Path, host: HookHost, tally: Tally) -> None:
    if host.resolve is None:
        raise NetworkTrouble("there is no coordinator to ask for links")
    fetching = Fetching(
        resolve=host.resolve,
        transfers=host.transfers,
        access=file_access(host.sandbox),
        network_deadline_s=host.network_deadline_s,
    )
    await fetch_resources(hook.resources, root, fetching, tally)


def _patient(host: HookHost, context: HookContext) -> HookHost:
    if context.phase == "preparation":
        return host
    deadline_s = min(host.network_deadline_s, CLEANUP_NETWORK_DEADLINE_S)
    return msgspec.structs.replace(host, network_deadline_s=deadline_s)


def _are_there(hook: EnvHookSpec, root: Path) -> bool:
    return all((root / resource.local_path).is_file() for resource in hook.resources)


def _judge(end: HookEnd, stderr: Path) -> HookResult:
    tail = text_tail(_read_tail(stderr))
    if end.kind == "exited":
        code = exit_code(end.status)
        kind: HookKind = "ok" if code == 0 else "command"
        return HookResult(kind=kind, exit_code=code, stderr_tail=tail, survivors=end.survivors)
    if end.kind in ("timed_out", "stopped"):
        kind = "timeout" if end.kind == "timed_out" else "cancelled"
        return HookResult(kind=kind, stderr_tail=tail, survivors=end.survivors)
    reason = text_tail(f"{end.reason}\n{tail}".strip().encode())
    return HookResult(kind="command", stderr_tail=reason, survivors=end.survivors)


def exit_code(status: int) -> int:
    """A raw wait status as a shell shows it: 137 for SIGKILL."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _SIGNAL_BASE - code


def text_tail(data: bytes) -> str:
    """The last 4 KiB as text that every store takes: no broken character, no NUL."""
    cut = data[-STDERR_TAIL_BYTES:]
    if len(data) > len(cut):
        # The cut may fall into a character: at most three bytes of one are left of it.
        cut = cut[next((i for i in range(4) if cut[i] & 0xC0 != 0x80), 0) :]
    text = cut.decode("utf-8", "replace").replace("\0", "\ufffd")
    # A replaced byte takes three, so the text is cut once more.
    return text.encode()[-STDERR_TAIL_BYTES:].decode("utf-8", "ignore")


def _read_tail(path: Path) -> bytes:
    """A little more than is shown, so that `text_tail` knows whether it cuts."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, STDERR_TAIL_BYTES + 1, max(0, size - STDERR_TAIL_BYTES - 1))
    finally:
        os.close(fd)


def _reason(error: AgentError | OSError) -> str:
    if isinstance(error, OSError):
        return f"{error.strerror or type(error).__name__}: {error.filename or 'work directory'}"
    return str(error) or type(error).__name__


def _tell(result: HookResult, context: HookContext) -> None:
    say = log.info if result.kind in ("ok", "cancelled") else log.warning
    say(
        "hook.ended",
        phase=context.phase,
        suite_uuid=str(context.suite_uuid),
        assignment_id=context.assignment_id,
        kind=result.kind,
        exit_code=result.exit_code,
        seconds=result.seconds,
        tries=result.tries,
    )
