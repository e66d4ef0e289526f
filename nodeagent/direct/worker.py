"""A direct worker from start to end: lanes, session, packages, and the way out.

`run_worker` (nodeagent.handlers) and the command line call `run_direct_worker`; programs with a
loop of their own use `open_worker`. Ends the commands, gives tasks back, removes the directories.
"""

import asyncio
import contextlib
import importlib
import sys
import uuid
from collections.abc import AsyncIterator, Collection, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

import structlog

from mitosis_protocol import faults
from mitosis_protocol.control_payloads import PkgEvent, PkgInstall, PkgUninstall
from mitosis_protocol.node_calls import COMMAND_NODE
from nodeagent.config import WorkerConfig
from nodeagent.direct import pressure
from nodeagent.direct.comm import DirectComm
from nodeagent.direct.events import Traits
from nodeagent.direct.exposition import serve
from nodeagent.direct.node_run import NodeRunner
from nodeagent.direct.nodes import DEFAULT, Handlers
from nodeagent.direct.packages import Packages
from nodeagent.direct.session import DirectSession
from nodeagent.direct.shelf import Shelf
from nodeagent.errors import ConfigInvalid, WorkerRemoved
from nodeagent.worker.control import Stopped, StopReason
from nodeagent.worker.departure import Departure
from nodeagent.worker.enrolment import Enrolment, enrol
from nodeagent.worker.housekeeping import (
    WorkspaceCleaner,
    exit_status,
    log_to_file,
    remove_workspace,
    unregister,
)
from nodeagent.worker.http_client import make_client
from nodeagent.worker.http_comm import HttpComm
from nodeagent.worker.launcher import Launcher
from nodeagent.worker.loop import Intervals, WorkerLoop
from nodeagent.worker.process_tree import hide_memory
from nodeagent.worker.task_run import TaskRunner
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers
from nodeagent.worker.workspace import Workspace

log = structlog.stdlib.get_logger(__name__)

MEASURE_S: Final = 5.0


def run_direct_worker(config: WorkerConfig, handlers: Handlers | None = None) -> int:
    """Run until told to leave; the process's exit status. Raises ConfigInvalid."""
    chosen = _handlers(config, handlers)
    if config.faults:
        faults.configure(config.faults)
        log.warning("faults.armed", plan=config.faults)
    # Commands run as the same user and could otherwise read our password from /proc.
    hide_memory()
    return exit_status(lambda: asyncio.run(_live(config, chosen)))


@contextlib.asynccontextmanager
async def open_worker(
    config: WorkerConfig, handlers: Handlers | None = None
) -> AsyncIterator["DirectWorker"]:
    """A worker beside the caller's own code; it leaves politely when the block ends."""
    enrolment = await enrol(config, "direct")
    worker = DirectWorker(config, enrolment, _handlers(config, handlers), Departure())
    try:
        async with asyncio.TaskGroup() as group:
            # A worker that fails ends the block: nobody should sit there and wait for it.
            running = group.create_task(worker.run())
            yield worker
            worker.departure.leave()
            await running
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from several


async def _live(config: WorkerConfig, handlers: Handlers) -> None:
    departure = Departure()
    departure.listen()
    try:
        enrolment = await departure.unless_asked(enrol(config, "direct"))
    except Stopped:
        return
    log_to_file(config, enrolment)
    structlog.contextvars.bind_contextvars(worker_uuid=str(enrolment.worker_uuid))
    log.info("worker.registered", coordinator=config.coordinator, tags=list(config.tags))
    await DirectWorker(config, enrolment, handlers, departure).run()


def _handlers(config: WorkerConfig, given: Handlers | None) -> Handlers:
    """Those given, or the default registry after the modules of `--handlers` were imported."""
    if config.handlers and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    for name in config.handlers:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise ConfigInvalid(f"handlers: {name} cannot be imported: {error}") from error
    chosen = DEFAULT if given is None else given
    if not chosen and not config.commands:
        raise ConfigInvalid("handlers: there are none, and plain commands are not wanted either")
    return chosen


class DirectWorker:
    """One process on the control plane with as many lanes as it runs tasks at once."""

    def __init__(
        self,
        config: WorkerConfig,
        enrolment: Enrolment,
        handlers: Handlers,
        departure: Departure,
    ) -> None:
        self.config = config
        self.departure = departure
        self.worker_uuid = enrolment.worker_uuid
        self._handlers = handlers
        tls = config.tls.open(config.coordinator)
        self._http = HttpComm(make_client(config.coordinator, enrolment.token, tls))
        self._transfers = Transfers()
        self._loops: list[WorkerLoop] = []
        self._jobs: set[asyncio.Task[None]] = set()
        self.session = DirectSession(
            config.coordinator, enrolment.token, _traits(config, enrolment, handlers), tls=tls
        )
        # Beside the lanes and swept like them: packages belong to an identity that ends with us.
        self._packages_home = uuid.uuid5(self.worker_uuid, "packages")
        home = config.cache_dir / "mitosis" / str(self._packages_home)
        self._packages = Packages(home / "packages", self._transfers)
        self._shelf = Shelf(self.worker_uuid, self._packages.root, self.session.machine.resources)
        self.session.keeper = self

    async def run(self) -> None:
        """Until asked to leave, or told to. Raises FatalError; no command runs afterwards."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(serve(self.config.metrics_listen, self._page))
                home = await self._open_workspace(stack, self._packages_home)
                assert self._packages.root.parent == home.root
                lanes = [await self._open_lane(stack, n) for n in range(self.config.concurrency)]
                await self._work(lanes)
        except WorkerRemoved:
            # Nothing to unregister from.
            raise
        except BaseException:
            await unregister(self._http)
            raise
        else:
            await unregister(self._http)
        finally:
            await self._transfers.close()
            await self._http.close()

    # --- what the session wants -------------------------------------------------------------

    def stop(self, attempt_id: int, why: Literal["cancelled", "revoked"]) -> None:
        reason = StopReason.CANCELLED if why == "cancelled" else StopReason.REVOKED
        for loop in self._loops:
            # Those that do not have it remember it: it may be on its way to them.
            loop.stop(attempt_id, reason)

    def install(self, request: PkgInstall) -> None:
        self._start_job(self._install(request))

    def uninstall(self, request: PkgUninstall) -> None:
        self._start_job(self._uninstall(request))

    # --- inside -----------------------------------------------------------------------------

    async def _open_lane(self, stack: contextlib.AsyncExitStack, number: int) -> WorkerLoop:
        config = self.config
        lane = uuid.uuid5(self.worker_uuid, f"lane {number}")
        workspace = await self._open_workspace(stack, lane)
        # Handlers have children of their own in this process: browsers, servers of models.
        launcher = Launcher(is_kept=True)
        stack.push_async_callback(launcher.close)
        comm = DirectComm(self.session, self._http)
        stack.push_async_callback(comm.close)
        commands = TaskRunner(comm, self._transfers, launcher, workspace, config.command_env)
        runner = NodeRunner(commands, comm, self._transfers, workspace, self._handlers, self._shelf)
        loop = WorkerLoop(
            comm,
            runner,
            WorkspaceCleaner(workspace),
            self.departure,
            Intervals(config.polling_interval_s, config.heartbeat_interval_s, config.grace_s),
        )
        self._loops.append(loop)
        return loop

    async def _open_workspace(self, stack: contextlib.AsyncExitStack, name: uuid.UUID) -> Workspace:
        workspace = await run_blocking(Workspace.create, self.config.cache_dir, name)
        stack.push_async_callback(remove_workspace, workspace)
        return workspace

    async def _work(self, lanes: Collection[WorkerLoop]) -> None:
        self.session.machine.packages[:] = await run_blocking(self._packages.installed)
        await self._measure()
        session = asyncio.create_task(self.session.run())
        working = [asyncio.create_task(lane.run()) for lane in lanes]
        chores = [
            asyncio.create_task(self._measure_for_ever()),
            asyncio.create_task(self._watch_departure()),
        ]
        try:
            await asyncio.wait({session, *working}, return_when=asyncio.FIRST_COMPLETED)
            if session.done():
                # Removed, or drained for good: whatever still runs has nobody to report to.
                self.departure.hurry()
            else:
                self.departure.leave()
            await asyncio.wait(working)
            if not session.done():
                self.session.leave(is_over=True)
            await asyncio.wait({session})
        finally:
            everything = [session, *working, *chores, *self._jobs]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
        for task in (session, *working):
            task.result()

    async def _watch_departure(self) -> None:
        await self.departure.wait_asked()
        self.session.leave()

    def _page(self) -> str:
        machine = self.session.machine
        return machine.numbers.page(inflight=len(machine.hand.dispatches))

    async def _measure_for_ever(self) -> None:
        while True:
            await asyncio.sleep(MEASURE_S)
            await self._measure()

    async def _measure(self) -> None:
        load = await run_blocking(pressure.measure, self.config.cache_dir)
        self.session.measure(load)

    def _start_job(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _install(self, request: PkgInstall) -> None:
        self._tell(await self._packages.install(request))

    async def _uninstall(self, request: PkgUninstall) -> None:
        self._tell(await self._packages.uninstall(request))

    def _tell(self, event: PkgEvent) -> None:
        self.session.machine.packages[:] = self._packages.installed()
        self.session.tell_package(event)


def _traits(config: WorkerConfig, enrolment: Enrolment, handlers: Handlers) -> Traits:
    node_types = (*((COMMAND_NODE,) if config.commands else ()), *handlers)
    return Traits(
        worker_uuid=enrolment.worker_uuid,
        process_uuid=uuid.uuid4(),
        # The coordinator binds it by the token; this only has to agree.
        tenant=config.groups[0].partition(":")[0] if config.groups else enrolment.user,
        node_types=node_types,
        max_parallel=config.concurrency,
        allow_packages=config.allow_packages,
        auth=config.tls.auth,
        software=f"nodeagent {version('mitosis')}",
    )
