"""Hooks and the debt book as effects and events. Made by agent.

Everything that blocks runs in threads; every hook is a chore, so that the agent leaves none behind.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

import msgspec
import structlog

from mitosis_protocol.faults import afault
from mitosis_protocol.specs import EnvHookSpec
from mitosis_protocol.to_manager import TaskSuiteSpec
from nodeagent import effects, events
from nodeagent.debt import Debt, DebtBook
from nodeagent.effects import Effect
from nodeagent.events import Event, HookPhase
from nodeagent.hooks.context import HookContext
from nodeagent.hooks.directories import remove_suite_dirs
from nodeagent.hooks.runner import HookHost, HookResult, run_hook, stage
from nodeagent.pool.pool import WorkerPool
from nodeagent.shell.chores import Chores
from nodeagent.shell.correspondence import Correspondence
from nodeagent.shell.mailbox import Handler
from nodeagent.worker.interruption import Switch
from nodeagent.worker.threads import run_blocking

log = structlog.stdlib.get_logger(__name__)


class Hooks:
    """At most one hook of an engagement runs at a time; the core sees to that."""

    def __init__(
        self,
        post: Callable[[Event], None],
        book: DebtBook,
        host: HookHost,
        pool: WorkerPool,
        talk: Correspondence,
        chores: Chores,
    ) -> None:
        self._post = post
        self._book = book
        self._host = host
        self._pool = pool
        self._talk = talk
        self._cancels: dict[tuple[int, HookPhase], Switch] = {}
        # One page at a time: an engagement that is taken up again in the next life has the number
        # of the debt that is being settled, and the same directory.
        self._accounting = asyncio.Lock()
        self._chores = chores

    def handlers(self) -> Mapping[type[Effect], Handler]:
        return {
            effects.OweCleanup: self._on_owe,
            effects.SettleDebt: self._on_settle,
            effects.RunHook: self._on_run,
            effects.CancelHook: self._on_cancel,
        }

    def _on_owe(self, effect: effects.OweCleanup) -> None:
        self._chores.start(self._owe(effect))

    def _on_settle(self, effect: effects.SettleDebt) -> None:
        self._chores.start(self._settle(effect.assignment_id))

    def _on_run(self, effect: effects.RunHook) -> None:
        cancel = self._cancels[effect.assignment_id, effect.phase] = Switch()
        self._chores.start(self._run(effect, cancel))

    def _on_cancel(self, effect: effects.CancelHook) -> None:
        cancel = self._cancels.get((effect.assignment_id, effect.phase))
        if cancel is not None:
            cancel.set()

    async def _owe(self, effect: effects.OweCleanup) -> None:
        debt = Debt.of(
            effect.suite, assignment_id=effect.assignment_id, manager_uuid=self._talk.manager_uuid
        )
        trouble = None
        try:
            async with self._accounting:
                await run_blocking(self._book.owe, debt)
        except OSError as error:
            trouble = f"the debt book cannot be written: {error.strerror}"
        self._post(events.DebtOwed(effect.assignment_id, trouble))

    async def _settle(self, assignment_id: int) -> None:
        async with self._accounting:
            await self._strike_out(assignment_id)

    async def _strike_out(self, assignment_id: int) -> None:
        debt = await self._find_debt(assignment_id)
        if debt is not None:
            await run_blocking(remove_suite_dirs, self._host.data_dir, debt.suite_uuid)
        try:
            await run_blocking(self._book.settle, assignment_id)
        except OSError as error:
            # Paid again by the next life, which hooks have to bear anyway.
            log.warning("debt.not_settled", assignment_id=assignment_id, error=error.strerror)

    async def _run(self, effect: effects.RunHook, cancel: Switch) -> None:
        key = (effect.assignment_id, effect.phase)
        await afault(f"suite.mid_{effect.phase}")
        try:
            result = await self._result(effect, cancel)
            survivors = max(result.survivors, await self._pool.empty_hook_group())
        finally:
            del self._cancels[key]
        if survivors:
            self._post(events.HostTroubled(f"{survivors} processes of a hook cannot be killed"))
        self._post(
            events.HookDone(
                assignment_id=effect.assignment_id,
                phase=effect.phase,
                kind=result.kind,
                exit_code=result.exit_code,
                stderr_tail=result.stderr_tail,
                seconds=result.seconds,
                tries=result.tries,
            )
        )

    async def _result(self, effect: effects.RunHook, cancel: Switch) -> HookResult:
        if effect.phase == "cleanup":
            return await self._clean_up(effect, cancel)
        suite = effect.suite
        if suite is None:
            raise AssertionError("only a cleanup can be owed")
        host = await self._host_for(effect.assignment_id)
        if suite.env_cleanup is not None and suite.env_cleanup.resources:
            context = self._context(suite, effect.assignment_id, "cleanup")
            staged = await stage(suite.env_cleanup, context, host, cancel)
            if not staged.is_ok:
                log.warning("hook.cleanup_not_staged", reason=staged.stderr_tail)
        if suite.env_preparation is None:
            return HookResult(kind="ok")
        context = self._context(suite, effect.assignment_id, "preparation")
        return await run_hook(suite.env_preparation, context, host, cancel)

    async def _clean_up(self, effect: effects.RunHook, cancel: Switch) -> HookResult:
        hook: EnvHookSpec | None
        if effect.suite is not None:
            hook = effect.suite.env_cleanup
            context = self._context(effect.suite, effect.assignment_id, "cleanup")
        else:
            debt = await self._find_debt(effect.assignment_id)
            if debt is None:
                return HookResult(kind="ok")
            hook, context = debt.hook, debt.context
        if hook is None:
            return HookResult(kind="ok")
        return await run_hook(hook, context, await self._host_for(effect.assignment_id), cancel)

    async def _find_debt(self, assignment_id: int) -> Debt | None:
        debts = await run_blocking(self._book.open_debts)
        return next((debt for debt in debts if debt.assignment_id == assignment_id), None)

    async def _host_for(self, assignment_id: int) -> HookHost:
        return msgspec.structs.replace(
            self._host,
            resolve=partial(self._talk.resolve, assignment_id),
            cgroup_procs=await self._pool.hook_group(),
        )

    def _context(self, suite: TaskSuiteSpec, assignment_id: int, phase: HookPhase) -> HookContext:
        return HookContext(
            phase=phase,
            suite_uuid=suite.uuid,
            suite_name=suite.name,
            group_name=suite.group_name,
            worker_count=suite.worker_schedule.worker_count,
            manager_uuid=self._talk.manager_uuid,
            assignment_id=assignment_id,
        )
