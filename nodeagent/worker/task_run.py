"""One attempt from offer to commit: resources, watch, command, report, uploads, follow-up.

Owns the order of steps and what each failure is called on the wire. Called by loop; knows
neither HTTP nor processes, only the seams WorkerComm and CommandRunner.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import msgspec
import structlog

from mitosis_protocol.enums import Outcome, TaskExecState, TaskResultMessage
from mitosis_protocol.faults import afault
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from mitosis_protocol.manager_reports import Facts
from nodeagent.errors import (
    HostUnusable,
    LimitsUnenforceable,
    ResourceMissing,
    ResourceRefused,
    SpawnRefused,
    TaskGone,
)
from nodeagent.failures import signal_name
from nodeagent.worker.artifacts import ArtifactUploader
from nodeagent.worker.comm import (
    Cancel,
    Commit,
    Crash,
    Finish,
    Report,
    TaskOffer,
    TaskRef,
    WorkerComm,
)
from nodeagent.worker.control import Stopped, StopReason, TaskControl
from nodeagent.worker.environment import own_env, shared_env
from nodeagent.worker.executor import CommandEnd, CommandRunner, EndCause, run_command
from nodeagent.worker.follow_up import submit_follow_up
from nodeagent.worker.launcher import Command, CommandExit
from nodeagent.worker.log_tail import LogTail
from nodeagent.worker.resources import fetch_resources
from nodeagent.worker.retry import persist
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers
from nodeagent.worker.watch import WatchHopeless, wait_for_state
from nodeagent.worker.workspace import Workspace

log = structlog.stdlib.get_logger(__name__)

# Resources and watch share this budget.
PREPARATION_S = 1800.0
# What `env` itself answers when it fails before it can run anything, as a raw wait status.
NEVER_RAN_STATUS = 125 << 8


class _Unprepared(Exception):
    def __init__(self, msg: TaskResultMessage, why: str) -> None:
        super().__init__(why)
        self.msg = msg


class _Verdict(msgspec.Struct, frozen=True):
    """What will be reported."""

    first: Finish | Cancel
    exit_status: int
    msg: TaskResultMessage | None
    has_run: bool = True
    survivors: int = 0
    signal: int | None = None  # of somebody else, that ended the command
    outcome: Outcome | None = None
    facts: Facts = {}


_CANCELLED = _Verdict(Cancel(), 0, TaskResultMessage.USER_CANCELLATION, has_run=False)


class TaskRunner:
    """Runs attempts one after another in one workspace."""

    def __init__(
        self,
        comm: WorkerComm,
        transfers: Transfers,
        runner: CommandRunner,
        workspace: Workspace,
        inherited_env: Mapping[str, str],
    ) -> None:
        self._comm = comm
        self._transfers = transfers
        self._runner = runner
        self._workspace = workspace
        self._shared_env = shared_env(inherited_env, workspace)
        self._uploader = ArtifactUploader(comm, transfers, workspace)

    async def run(self, offer: TaskOffer, control: TaskControl) -> None:
        """Raises ReportRefused, WorkerRemoved, HostUnusable; everything else is settled here."""
        log.info("task.started", timeout_s=offer.timeout_s)
        await afault("worker.task_fetched")
        try:
            verdict = await self._reach_verdict(offer, control)
            await control.guard(self._conclude(offer, verdict), only_if_dropped=True)
        except Stopped as stop:
            log.info("task.dropped", reason=stop.reason.value)
        except TaskGone as error:
            log.warning("task.gone", error=str(error))
        else:
            if verdict.survivors:
                raise HostUnusable(f"{verdict.survivors} processes of a task cannot be killed")

    async def reject(self, task: TaskRef, commit: Commit) -> None:
        """End an attempt that this worker cannot run, so that it is not handed out for ever."""
        try:
            await self._report(task, Cancel())
            await self._report(task, commit)
        except TaskGone as error:
            log.warning("task.gone", error=str(error))

    async def _reach_verdict(self, offer: TaskOffer, control: TaskControl) -> _Verdict:
        try:
            if offer.spec.resources or offer.spec.watch is not None:
                await control.guard(self._prepare(offer))
            if offer.needs_permit:
                await control.guard(persist(lambda: self._comm.permit(offer), what="permit"))
            # Stopped in the very moment in which everything was ready: do not start it.
            control.check()
        except _Unprepared as error:
            log.warning("task.unprepared", msg=error.msg.value, error=str(error))
            return _Verdict(Cancel(), 0, error.msg, has_run=False)
        except Stopped as stop:
            if stop.reason is StopReason.CANCELLED:
                return _CANCELLED
            raise
        return await self._execute(offer, control)

    async def _prepare(self, offer: TaskOffer) -> None:
        too_late = TaskResultMessage.FETCH_RESOURCE_TIMEOUT
        try:
            async with asyncio.timeout(PREPARATION_S):
                self._comm.note_state(offer, TaskExecState.FETCH_RESOURCE)
                await fetch_resources(self._comm, self._transfers, self._workspace, offer)
                if offer.spec.watch is not None:
                    too_late = TaskResultMessage.WATCH_TIMEOUT
                    self._comm.note_state(offer, TaskExecState.WATCH)
                    await self._watch(offer)
        except TimeoutError as error:
            raise _Unprepared(too_late, "took too long") from error
        except WatchHopeless as error:
            raise _Unprepared(TaskResultMessage.WATCH_TIMEOUT, str(error)) from error
        except ResourceMissing as error:
            raise _Unprepared(TaskResultMessage.RESOURCE_NOT_FOUND, str(error)) from error
        except ResourceRefused as error:
            raise _Unprepared(TaskResultMessage.RESOURCE_FORBIDDEN, str(error)) from error

    async def _watch(self, offer: TaskOffer) -> None:
        assert offer.spec.watch is not None
        uuid, wanted = offer.spec.watch

        await wait_for_state(
            lambda uuid: persist(lambda: self._comm.read_task(uuid), what="watch"), uuid, wanted
        )

    async def _execute(self, offer: TaskOffer, control: TaskControl) -> _Verdict:
        files = {"stdout": self._workspace.stdout_file, "stderr": self._workspace.stderr_file}
        is_captured = offer.spec.terminal_output or offer.live_logs
        command = Command(
            argv=offer.spec.args,
            env=own_env(offer),
            shared_env=self._shared_env,
            stdout=files["stdout"] if is_captured else None,
            stderr=files["stderr"] if is_captured else None,
            limits=offer.limits,
        )
        tail = LogTail(self._comm, offer, files)
        if offer.live_logs:
            tail.start()
        # Said before it is so: from here on the command may have run.
        self._comm.note_state(offer, TaskExecState.EXEC_PENDING)
        self._comm.note_state(offer, TaskExecState.EXEC_SPAWNED)
        await afault("start.before_exec")
        try:
            end = await run_command(
                self._runner, command, timeout_s=offer.timeout_s, control=control
            )
        except (SpawnRefused, LimitsUnenforceable) as error:
            log.warning("command.refused", error=str(error))
            if is_captured:
                await run_blocking(_append, files["stderr"], f"mitosis: {error}\n")
            if offer.live_logs:
                await control.guard(tail.finish(), only_if_dropped=True)
            facts: Facts = {"refused": str(error)[:MAX_ERROR_MESSAGE_CHARS]}
            return _Verdict(Finish(), NEVER_RAN_STATUS, None, facts=facts)
        finally:
            await tail.stop()
        if offer.live_logs and not control.is_dropped:
            await control.guard(tail.finish(), only_if_dropped=True)
        return _judge(end, control)

    async def _conclude(self, offer: TaskOffer, verdict: _Verdict) -> None:
        await afault("worker.before_finish")
        await self._report(offer, verdict.first)
        crash = self._crash_of(verdict)
        msg = verdict.msg
        if verdict.has_run:
            self._comm.note_state(offer, TaskExecState.UPLOAD_RESULT)
            has_files = not self._workspace.is_untouched()
            if not await self._uploader.upload_all(offer, has_files=has_files):
                msg = msg or TaskResultMessage.UPLOAD_RESULT_TIMEOUT
            # What is run again would submit it again.
            is_final = crash is None and msg is not TaskResultMessage.USER_CANCELLATION
            if (
                has_files
                and is_final
                and not await submit_follow_up(self._comm, offer, self._workspace.new_task_file)
            ):
                msg = msg or TaskResultMessage.SUBMIT_NEW_TASK_FAILED
        await afault("worker.before_commit")
        commit = Commit(verdict.exit_status, msg, verdict.outcome, verdict.facts)
        await self._report(offer, crash or commit)
        await afault("worker.after_commit")
        log.info("task.committed", exit_status=verdict.exit_status, msg=msg and msg.value)

    def _crash_of(self, verdict: _Verdict) -> Crash | None:
        if verdict.signal is None or not self._comm.takes_crashes:
            return None
        reason = f"the command was ended by {signal_name(verdict.signal)}"
        return Crash(verdict.signal, reason, verdict.facts)

    async def _report(self, task: TaskRef, report: Report) -> None:
        name = type(report).__name__.lower()
        await persist(lambda: self._comm.report(task, report), what=name)


def _judge(end: CommandEnd, control: TaskControl) -> _Verdict:
    exit_ = end.exit
    log.info(
        "command.ended",
        cause=end.cause.value,
        status=exit_.status,
        leftovers=exit_.leftovers,
        cpu_s=exit_.cpu_s,
        max_rss_kib=exit_.max_rss_kib,
    )
    if control.reason is not None and control.is_dropped:
        raise Stopped(control.reason)
    facts = _facts_of(exit_)
    if end.cause is EndCause.EXITED:
        # Out of memory is an outcome with rules of its own, not a crash.
        killer = exit_.status & 0x7F if not exit_.was_oom else 0
        return _Verdict(
            Finish(),
            exit_.status,
            None,
            survivors=exit_.survivors,
            signal=killer or None,
            outcome=Outcome.OOM if exit_.was_oom else None,
            facts=facts,
        )
    if end.cause is EndCause.TIMED_OUT:
        msg, status = TaskResultMessage.EXEC_TIMEOUT, exit_.status
    else:
        # What existing clients see of a task its user cancelled, whatever signal ended it.
        msg, status = TaskResultMessage.USER_CANCELLATION, 0
    return _Verdict(Cancel(), status, msg, survivors=exit_.survivors, facts=facts)


def _facts_of(end: CommandExit) -> Facts:
    """What was measured; nothing is said where nothing counted."""
    measured: Facts = {
        "cpu_s": end.cpu_s,
        "max_rss_kib": end.max_rss_kib,
        "leftovers": end.leftovers,
        "peak_memory_bytes": end.peak_memory_bytes,
        "peak_pids": end.peak_pids,
    }
    return {name: value for name, value in measured.items() if value}


def _append(file: Path, text: str) -> None:
    with file.open("a", encoding="utf-8", errors="replace") as out:
        out.write(text)
