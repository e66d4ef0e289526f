"""Workers as effects and events: their shelf and answers over IPC, their processes in the pool.

Calls into the IPC server that matter for latency happen on the loop; what takes longer is a chore.
Made by agent.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog

from mitosis_protocol.ipc import WorkerSettings
from mitosis_protocol.to_manager import TaskSuiteSpec
from nodeagent import effects, events
from nodeagent.effects import Effect
from nodeagent.errors import HostUnusable, LimitsUnenforceable, SpawnFailed
from nodeagent.events import Event, WorkerKey
from nodeagent.failures import ExitReason
from nodeagent.hooks.directories import suite_dirs
from nodeagent.ipc.server import IpcServer
from nodeagent.marker import SUITE_DIR
from nodeagent.pool.launch import SlotPlan, WorkerLaunch
from nodeagent.pool.pool import WorkerPool
from nodeagent.shell.chores import Chores
from nodeagent.shell.mailbox import Handler
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.workspace import remove_tree

log = structlog.stdlib.get_logger(__name__)


class LaunchFacts(msgspec.Struct, frozen=True):
    """What all workers have in common."""

    root: Path
    env: Mapping[str, str]
    log_level: str
    log_format: str
    faults: str = ""

    @property
    def work_dir(self) -> Path:
        return self.root / "workers"

    def env_for(self, suite: TaskSuiteSpec) -> dict[str, str]:
        """Tasks are told where the preparation left its files, if there was one."""
        if suite.env_preparation is None:
            return dict(self.env)
        return {**self.env, SUITE_DIR: str(suite_dirs(self.root, suite.uuid).shared)}


class Workers:
    """One suite's workers at a time; the core sees to that."""

    def __init__(
        self,
        post: Callable[[Event], None],
        ipc: IpcServer,
        pool: WorkerPool,
        chores: Chores,
        launch: LaunchFacts,
    ) -> None:
        self._post = post
        self._ipc = ipc
        self._pool = pool
        self._chores = chores
        self._launch = launch
        self._plans: dict[int, SlotPlan] = {}
        self._settings = WorkerSettings()
        self._spawning: set[WorkerKey] = set()
        self._early_exits: dict[WorkerKey, ExitReason] = {}
        # One at a time: 256 to come would take every thread, and none were forked before the last.
        self._changing_ipc = asyncio.Lock()
        pool.on_exit = self._on_exit

    def handlers(self) -> Mapping[type[Effect], Handler]:
        return {
            effects.PutOnShelf: self._on_put,
            effects.Withdraw: self._on_withdraw,
            effects.Remove: self._on_remove,
            effects.SetServing: lambda effect: self._ipc.set_serving(effect.is_serving),
            effects.ReplyIpc: lambda effect: self._ipc.reply(effect.token, effect.answer),
            effects.Publish: self._on_publish,
            effects.DismissWorker: lambda effect: self._ipc.dismiss(effect.worker),
            effects.PlanSlots: self._on_plan,
            effects.SpawnWorker: lambda effect: self._chores.start(self._spawn(effect)),
            effects.KillWorker: lambda effect: self._pool.kill(effect.worker),
            effects.ReleaseSlots: lambda effect: self._chores.start(
                self._release(effect.assignment_id)
            ),
        }

    def _on_put(self, effect: effects.PutOnShelf) -> None:
        self._ipc.put(effect.items, at_front=effect.at_front)

    def _on_withdraw(self, effect: effects.Withdraw) -> None:
        self._post(events.Withdrawn(tuple(self._ipc.withdraw(effect.at_most))))

    def _on_remove(self, effect: effects.Remove) -> None:
        self._post(events.Withdrawn(tuple(self._ipc.remove(effect.attempt_ids))))

    def _on_publish(self, effect: effects.Publish) -> None:
        if isinstance(effect.message, WorkerSettings):
            # Workers that start later hear it at their start.
            self._settings = effect.message
        self._ipc.publish(effect.message)

    def _on_plan(self, effect: effects.PlanSlots) -> None:
        suite = effect.suite
        try:
            plans = self._pool.check(suite.worker_schedule, suite.limits)
        except LimitsUnenforceable as error:
            self._post(events.SlotsRefused(effect.assignment_id, str(error)))
            return
        earlier, self._plans = self._plans, {plan.local_id: plan for plan in plans}
        running = {worker.local_id for worker in self._pool.running}
        moved = [
            plan
            for plan in plans
            if plan.local_id in running and plan != earlier.get(plan.local_id)
        ]
        if moved:
            self._chores.start(self._rebind(moved))
        self._post(events.SlotsPlanned(effect.assignment_id, len(plans)))

    async def _rebind(self, plans: list[SlotPlan]) -> None:
        """Workers of a suite that was scaled share the cores anew, in the midst of their tasks."""
        try:
            await self._pool.rebind(plans)
        except OSError as error:
            log.warning("workers.not_rebound", error=str(error))

    async def _spawn(self, effect: effects.SpawnWorker) -> None:
        worker = effect.worker
        self._spawning.add(worker)
        try:
            async with self._changing_ipc:
                endpoint = await run_blocking(self._ipc.attach, worker)
            pid = await self._pool.spawn(
                WorkerLaunch(
                    key=worker,
                    endpoint=endpoint,
                    slot=self._plans[worker.local_id],
                    suite_uuid=effect.suite.uuid,
                    work_dir=str(self._launch.work_dir / str(worker.local_id)),
                    env=self._launch.env_for(effect.suite),
                    settings=self._settings,
                    log_level=self._launch.log_level,
                    log_format=self._launch.log_format,
                    faults=self._launch.faults,
                )
            )
        except (SpawnFailed, OSError) as error:
            await self._detach(worker)
            log.warning("worker.not_spawned", worker=worker.local_id, error=str(error))
            self._post(events.SpawnFailed(worker, str(error)))
            return
        finally:
            self._spawning.discard(worker)
        self._post(events.WorkerSpawned(worker, pid))
        ended = self._early_exits.pop(worker, None)
        if ended is not None:
            self._on_exit(worker, ended)

    async def _detach(self, worker: WorkerKey) -> None:
        async with self._changing_ipc:
            await run_blocking(self._ipc.detach, worker)

    async def _release(self, assignment_id: int) -> None:
        trouble = None
        try:
            await self._pool.release_slots()
            await run_blocking(_empty, self._launch.work_dir)
        except (HostUnusable, OSError) as error:
            trouble = str(error)
        self._post(events.SlotsReleased(assignment_id, trouble))

    def _on_exit(self, worker: WorkerKey, reason: ExitReason) -> None:
        if worker in self._spawning:
            # The core hears of an end only after it has heard of the beginning.
            self._early_exits[worker] = reason
            return
        self._chores.start(self._detach(worker))
        self._post(events.WorkerExited(worker, reason))


def _empty(work_dir: Path) -> None:
    """What workers left in their directories is of no use to the next suite."""
    if work_dir.is_dir():
        for place in work_dir.iterdir():
            remove_tree(place)
