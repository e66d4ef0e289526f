"""The agent's workers: plan their slots, start them, kill them, hear of their ends, clean up.

Facade over the fork server (process), cgroups (slots), cores (cpu), GPUs (gpu) and users
(sandbox). Called by the agent's shell, on its event loop.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Sequence

import msgspec
import structlog

from mitosis_protocol.specs import WorkerSchedule
from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import AgentError, HostUnusable, LimitsUnenforceable, SpawnFailed
from nodeagent.failures import ExitReason
from nodeagent.ipc.server import WorkerKey
from nodeagent.pool import cpu, gpu
from nodeagent.pool.host import find_hierarchies
from nodeagent.pool.launch import SlotPlan, SlotSetup, WorkerLaunch, WorkerStart, encode_start
from nodeagent.pool.process import ForkServerLink, WorkerProcess
from nodeagent.pool.sandbox import Sandbox, choose_sandbox
from nodeagent.pool.slots import SlotTree, allowed_by_cpuset, end_subtrees
from nodeagent.worker.process_tree import descendants

log = structlog.stdlib.get_logger(__name__)

MANAGED_WORKER = "nodeagent.worker.managed:main"
_KILLED = ExitReason(signal=9)


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent's configuration says about running commands."""

    instance: str = "default"
    sandbox_user: str | None = None
    use_cgroups: bool = True
    gpus: tuple[str, ...] | None = None  # None: what /dev shows
    target: str = MANAGED_WORKER


class WorkerPool:
    """All workers of this host. `on_exit` is called when nothing of a worker is left."""

    def __init__(
        self,
        settings: PoolSettings,
        on_exit: Callable[[WorkerKey, ExitReason], None],
        on_trouble: Callable[[AgentError], None],
    ) -> None:
        self.on_exit = on_exit
        self._on_trouble = on_trouble
        self._settings = settings
        self._hierarchies = find_hierarchies() if settings.use_cgroups else []
        self._tree = SlotTree(settings.instance, self._hierarchies)
        self._sandbox = Sandbox()
        self._gpus = gpu.find_devices() if settings.gpus is None else settings.gpus
        self._link: ForkServerLink | None = None
        self._starting = asyncio.Lock()
        self._workers: dict[int, tuple[WorkerKey, WorkerProcess]] = {}
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox

    @property
    def running(self) -> dict[WorkerKey, int]:
        """Living workers and their pids."""
        return {key: process.pid for key, process in self._workers.values()}

    async def open(self) -> None:
        """Find out what this host allows, start the fork server. Raises SpawnFailed."""
        self._sandbox = choose_sandbox(self._settings.instance, self._settings.sandbox_user)
        await asyncio.to_thread(self._tree.open)
        log.info(
            "pool.opened",
            cgroups=list(self._tree.subtrees),
            missing=self._tree.trouble or None,
            sandbox=self._sandbox.reason or "a user of its own for each slot",
            gpus=len(self._gpus),
        )
        await self._ensure_link()

    def check(self, schedule: WorkerSchedule, limits: ResourceLimits | None) -> list[SlotPlan]:
        """The slots of a suite. Raises LimitsUnenforceable, with the reason."""
        self.check_limits(limits)
        count = schedule.worker_count
        gpus = gpu.split(self._gpus, count)
        cores: Sequence[tuple[int, ...] | None] = [None] * count
        if schedule.cpu_binding is not None:
            binding = schedule.cpu_binding
            cores = cpu.plan(
                binding.strategy, binding.cores, binding.cores_per_worker, count, self._cores()
            )
        return [SlotPlan(n, cores[n], gpus[n], limits) for n in range(count)]

    def check_limits(self, limits: ResourceLimits | None) -> None:
        """Raises LimitsUnenforceable."""
        if limits is None:
            return
        for controller, asked in (
            ("memory", limits.memory),
            ("pids", limits.pids),
            ("cpu", limits.cpus),
        ):
            if asked is not None and not self._tree.can(controller):
                reason = self._tree.trouble.get(controller, "cgroups are switched off")
                raise LimitsUnenforceable(f"a limit of {controller} cannot be enforced: {reason}")

    async def spawn(self, launch: WorkerLaunch) -> int:
        """Start a worker in its slot; its pid. Raises SpawnFailed."""
        slot = launch.slot
        try:
            groups = await asyncio.to_thread(self._tree.ensure, slot.local_id, slot.cores)
        except OSError as error:
            raise SpawnFailed(f"the slot's cgroup cannot be made: {error}") from error
        identity = self._sandbox.identity(slot.local_id)
        setup = SlotSetup(
            groups,
            identity.uid if identity else None,
            identity.gid if identity else None,
            slot.cores if slot.cores and not self._tree.can("cpuset") else (),
            slot.limits,
        )
        visible = gpu.visible(slot.gpus, has_gpus=bool(self._gpus))
        complete = msgspec.structs.replace(launch, env={**launch.env, **visible})
        link = await self._ensure_link()
        fd = launch.endpoint.fd

        def adopt(process: WorkerProcess) -> None:
            self._workers[process.pid] = (launch.key, process)

        start = encode_start(WorkerStart(complete, setup))
        return await link.spawn(start, [] if fd is None else [fd], adopt)

    def kill(self, key: WorkerKey) -> None:
        """SIGKILL; `on_exit` follows when its tree and its slot are empty too."""
        for known, process in self._workers.values():
            if known == key:
                process.kill()

    async def rebind(self, plans: Iterable[SlotPlan]) -> None:
        """New cores for slots that may be running; everything in them moves at once."""
        for plan in plans:
            if self._tree.can("cpuset"):
                await asyncio.to_thread(self._tree.bind, plan.local_id, plan.cores)
            else:
                await asyncio.to_thread(self._set_affinity, plan)

    async def hook_group(self) -> tuple[str, ...]:
        """Where a hook has to write itself in; empty on a host without cgroups."""
        try:
            return await asyncio.to_thread(self._tree.ensure_hooks)
        except OSError as error:
            # Its launcher and the mark in its environment still find what it leaves.
            log.warning("hook.without_cgroup", error=str(error))
            return ()

    async def empty_hook_group(self) -> int:
        """After a hook: nothing of it goes on; how many processes would not die."""
        return await asyncio.to_thread(self._tree.empty_hooks)

    async def release_slots(self) -> None:
        """After the last worker: remove every slot's cgroup. Raises HostUnusable."""
        while self._endings:
            await asyncio.wait(self._endings)
        await asyncio.to_thread(self._release)

    async def close(self) -> None:
        """Kill what runs, end the fork server, remove the cgroups. Raises HostUnusable."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()
        for _, process in self._workers.values():
            process.close()
        self._workers.clear()
        while self._endings:
            await asyncio.wait(self._endings)
        left = await asyncio.to_thread(end_subtrees, self._tree.subtrees)
        if left:
            raise HostUnusable(f"{left} processes of tasks cannot be killed")

    async def _ensure_link(self) -> ForkServerLink:
        async with self._starting:
            if self._link is None:
                link = ForkServerLink(self._on_worker_exit, self._on_server_lost)
                await link.open(self._settings.target, self._tree.subtrees)
                self._link = link
            return self._link

    def _on_worker_exit(self, pid: int, reason: ExitReason) -> None:
        if pid not in self._workers:
            return  # killed before anybody knew it
        key, process = self._workers.pop(pid)
        process.close()
        ending = asyncio.get_running_loop().create_task(self._finish(key, reason))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    def _on_server_lost(self) -> None:
        """Somebody killed it; its workers die with it, by their parent-death signal."""
        link, self._link = self._link, None
        log.error("fork_server.lost", workers=len(self._workers))
        for pid, (_, process) in list(self._workers.items()):
            process.kill()
            self._on_worker_exit(pid, _KILLED)
        if link is not None:
            reaping = asyncio.get_running_loop().create_task(link.close())
            self._endings.add(reaping)
            reaping.add_done_callback(self._endings.discard)

    async def _finish(self, key: WorkerKey, reason: ExitReason) -> None:
        left = await asyncio.to_thread(self._tree.empty, key.local_id)
        if left:
            self._on_trouble(HostUnusable(f"{left} processes of a task cannot be killed"))
        self.on_exit(key, reason)

    def _release(self) -> None:
        busy = {key.local_id for key, _ in self._workers.values()}
        for local_id in self._tree.slot_ids() - busy:
            left = self._tree.empty(local_id)
            if left:
                raise HostUnusable(f"{left} processes of tasks cannot be killed")
            try:
                self._tree.remove(local_id)
            except OSError as error:
                raise HostUnusable(f"a slot's cgroup cannot be removed: {error}") from error

    def _cores(self) -> list[int]:
        allowed = cpu.allowed_cores()
        if self._tree.can("cpuset"):
            bound = allowed_by_cpuset(self._hierarchies)
            return sorted(set(allowed) & set(bound)) if bound else allowed
        return allowed

    def _set_affinity(self, plan: SlotPlan) -> None:
        cores = plan.cores or self._cores()
        for key, process in list(self._workers.values()):
            if key.local_id == plan.local_id:
                # Twice, so that a child born between reading and setting is not missed.
                for _ in range(2):
                    for pid in descendants(process.pid):
                        with contextlib.suppress(OSError):
                            os.sched_setaffinity(pid, cores)
