"""The node agent: opens its parts in order, feeds the core, and closes everything again.

Called by cli with an AgentConfig. Orphans of an earlier life are gone before anything else is
asked of anybody; on the way out the coordinator hears the last word, then workers end, then files
are closed. What each effect does is in nodeagent.shell.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx2
import msgspec
import structlog

from mitosis_protocol import faults
from nodeagent import effects, events
from nodeagent.agent_config import AgentConfig
from nodeagent.coordinator.link import BACKOFF, Link
from nodeagent.coordinator.rest import Registration
from nodeagent.coordinator.tokens import TokenKeeper
from nodeagent.debt import DebtBook
from nodeagent.disk import DiskState, disk_room
from nodeagent.effects import Effect
from nodeagent.errors import FatalError, HostUnusable
from nodeagent.hooks.runner import HookHost
from nodeagent.ipc.server import OnLoop
from nodeagent.ipc.transport import make_server
from nodeagent.machine_lock import MachineLock
from nodeagent.marker import MARKER, marker_value
from nodeagent.outbox import Outbox
from nodeagent.pool.pool import PoolSettings, WorkerPool
from nodeagent.pool.sandbox import choose_sandbox
from nodeagent.shell.boot import (
    hook_user,
    leave_work_root,
    make_data_dir,
    make_token_keeper,
    make_work_root,
    pool_instance,
    sweep_earlier_life,
)
from nodeagent.shell.chores import Chores
from nodeagent.shell.correspondence import Correspondence
from nodeagent.shell.hooks import Hooks
from nodeagent.shell.mailbox import Handler, Mailbox
from nodeagent.shell.measurements import Measurements
from nodeagent.shell.results import Results
from nodeagent.shell.signals import LeaveSignals, LeftEarly
from nodeagent.shell.watched_tasks import WatchedTasks
from nodeagent.shell.workers import LaunchFacts, Workers
from nodeagent.state import AgentState
from nodeagent.systemd import notify
from nodeagent.tls import ClientTls
from nodeagent.worker.http_client import make_client
from nodeagent.worker.process_tree import hide_memory
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers

new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
with contextlib.suppress(ImportError):  # part of the server's install only
    import uvloop

    new_event_loop = uvloop.new_event_loop

log = structlog.stdlib.get_logger(__name__)

TICK_S: Final = 0.25
FORCED_EXIT_S: Final = 10.0
# After a second signal, or when killed workers would not go: not all was left in order.
FORCED_EXIT_CODE: Final = 1
LAST_WORDS_S: Final = 2.0
DISK_LOOK_S: Final = 5.0  # a look costs microseconds; a disk fills in seconds


def run_agent(config: AgentConfig) -> int:
    """Run until told to leave; the process's exit status."""
    if config.faults:
        faults.configure(config.faults)
        log.warning("faults.armed", plan=config.faults)
    # Commands may run as the same user and could otherwise read our tokens from /proc.
    hide_memory()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            code = runner.run(_live(config))
    except KeyboardInterrupt:
        # Before or after the time in which signals are listened to.
        return 130
    except FatalError as end:
        log.critical("agent.failed", reason=str(end), kind=type(end).__name__)
        notify(config.notify_socket, f"STATUS={end}")
        return end.exit_code
    log.info("agent.left", code=code)
    return code


async def _live(config: AgentConfig) -> int:
    signals = LeaveSignals()
    async with AsyncExitStack() as stack:
        sandbox = choose_sandbox(pool_instance(config), config.sandbox_user)
        make_data_dir(config.data_dir)
        lock = MachineLock(config.lock_dir, config.data_dir, config.instance)
        lock.acquire()
        stack.callback(lock.release)
        book = DebtBook(config.data_dir / "debts")
        work_root = make_work_root(config, sandbox)
        stack.callback(leave_work_root, config, work_root)
        if not await sweep_earlier_life(config, book, work_root):
            raise HostUnusable("processes of an earlier agent cannot be killed")
        tls = config.tls.open(config.coordinator)
        client = await stack.enter_async_context(make_client(config.coordinator, tls=tls))
        tokens = make_token_keeper(config, client)
        registration = Registration(tags=config.tags, labels=config.labels, groups=config.groups)
        try:
            identity = await signals.unless_asked(tokens.establish(registration))
        except LeftEarly:
            return 0
        structlog.contextvars.bind_contextvars(manager=str(identity.manager_uuid))
        agent = Agent(config, work_root, tokens, stack)
        await agent.open(book, client, tls)
        signals.tell(agent.leave)
        return await agent.run()


class Agent:
    """One life after the identity is known. Everything it opens goes onto the stack."""

    def __init__(
        self, config: AgentConfig, work_root: Path, tokens: TokenKeeper, stack: AsyncExitStack
    ) -> None:
        self._config = config
        self._work_root = work_root
        self._tokens = tokens
        self._stack = stack
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._forced_code = 0

    async def open(self, book: DebtBook, client: httpx2.AsyncClient, tls: ClientTls) -> None:
        """Files, workers' transport and fork server; nothing is asked of the coordinator yet."""
        config, manager_uuid = self._config, self._tokens.identity.manager_uuid
        self._book = book
        self._outbox = await run_blocking(Outbox, config.data_dir / "outbox.sqlite")
        self._stack.callback(self._outbox.close)
        ipc = make_server(config.transport, self._work_root / "ipc", manager_uuid)
        measurements = Measurements(config.data_dir, ipc.stats)
        self._mailbox = mailbox = Mailbox(AgentState(uuid4()), measurements)
        post = mailbox.post
        hearing = OnLoop(self._loop, mailbox.note, mailbox.drain)
        await run_blocking(ipc.open, mailbox.post_from_thread, hearing)
        self._stack.push_async_callback(run_blocking, ipc.close)
        self._chores = chores = Chores(mailbox.fail)
        self._correspondence = talk = Correspondence(post, manager_uuid, measurements.sample)
        self._results = Results(post, self._outbox, talk)
        pool = await self._open_pool()
        workers = Workers(post, ipc, pool, chores, self._launch_facts())
        host = self._hook_host(pool)
        hooks = Hooks(post, book, host, pool, talk, chores)
        watched = WatchedTasks(post, client, self._tokens.current, chores)
        for part in (talk, self._results, workers, hooks, watched):
            mailbox.connect(part.handlers())
        mailbox.connect(self._handlers())
        mailbox.after_each_round(self._results.store_collected)
        backoff = msgspec.structs.replace(BACKOFF, cap_s=config.reconnect_max_s)
        self._link = Link(config.coordinator, self._tokens, talk, tls=tls, backoff=backoff)
        talk.use(self._link)

    async def run(self) -> int:
        """From the first event to the last; the exit status. Raises FatalError."""
        lines = await run_blocking(self._outbox.pending)
        debts = await run_blocking(self._book.open_debts)
        self._mailbox.post(
            events.Booted(
                results=tuple(line.report for line in lines),
                debts=tuple(events.OwedCleanup(d.assignment_id, d.suite_uuid) for d in debts),
            )
        )
        log.info("agent.started", unsent_results=len(lines), owed_cleanups=len(debts))
        notify(self._config.notify_socket, "READY=1")
        essential = [
            asyncio.create_task(work)
            for work in (
                self._link.run(),
                self._tokens.keep_fresh(),
                self._results.run(),
                self._tick(),
                self._watch_disk(),
            )
        ]
        ends: set[asyncio.Future[Any]] = {self._exit, self._mailbox.failed, *essential}
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return self._exit.result() if self._exit in done else self._explain(done)
        finally:
            self._mailbox.close()
            notify(self._config.notify_socket, "STOPPING=1")
            await self._say_last_words()
            for task in essential:
                task.cancel()
            await asyncio.gather(*essential, return_exceptions=True)
            await self._chores.close()

    def leave(self, is_forced: bool) -> None:
        """Asked by a signal; politeness ends with the configured grace or a second signal."""
        if is_forced:
            self._forced_code = FORCED_EXIT_CODE
            self._force()
        else:
            self._mailbox.post(events.ShutdownAsked())
            self._loop.call_later(self._config.grace_s, self._force)

    def _force(self) -> None:
        self._mailbox.post(events.ShutdownAsked(is_forced=True))
        # Whatever the core waits for: killed workers are buried by then.
        self._loop.call_later(FORCED_EXIT_S, self._end, FORCED_EXIT_CODE)

    def _end(self, code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(code or self._forced_code)

    def _explain(self, done: set[asyncio.Future[Any]]) -> int:
        """Why it is over although nobody asked for it."""
        for future in done:
            future.result()
        raise AssertionError("an endless task has ended")

    def _handlers(self) -> Mapping[type[Effect], Handler]:
        return {
            effects.Note: lambda e: getattr(log, e.level)(e.event, **e.facts),
            effects.Exit: self._on_exit,
            effects.ScheduleFlush: self._on_schedule_flush,
        }

    def _on_exit(self, effect: effects.Exit) -> None:
        log.info("agent.exit", code=effect.code, reason=effect.reason)
        self._end(effect.code)

    def _on_schedule_flush(self, effect: effects.ScheduleFlush) -> None:
        self._loop.call_later(effect.after_s, self._mailbox.post, events.FlushDue())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._correspondence.expire()
            self._mailbox.post(events.Tick())

    async def _watch_disk(self) -> None:
        known = ""
        while True:
            trouble = await run_blocking(_disk_trouble, self._config.data_dir)
            if bool(trouble) != bool(known):
                self._mailbox.post(events.DiskNoted(trouble))
            known = trouble
            await asyncio.sleep(DISK_LOOK_S)

    async def _say_last_words(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self._link.flush()

    async def _open_pool(self) -> WorkerPool:
        pool = WorkerPool(
            PoolSettings(
                instance=pool_instance(self._config),
                sandbox_user=self._config.sandbox_user,
                use_cgroups=self._config.cgroup != "off",
            ),
            lambda _worker, _reason: None,  # Workers puts itself here
            lambda error: self._mailbox.post(events.HostTroubled(str(error))),
        )
        self._stack.push_async_callback(pool.close)
        await pool.open()
        return pool

    def _launch_facts(self) -> LaunchFacts:
        config = self._config
        return LaunchFacts(
            root=self._work_root,
            env={**config.command_env, MARKER: marker_value(config.instance, config.data_dir)},
            faults=config.faults,
            log_level=config.log_level,
            log_format=config.log_format,
        )

    def _hook_host(self, pool: WorkerPool) -> HookHost:
        transfers = Transfers()
        self._stack.push_async_callback(transfers.close)
        return HookHost(
            data_dir=self._work_root,
            transfers=transfers,
            resolve=None,
            marker=marker_value(self._config.instance, self._config.data_dir),
            env=self._config.command_env,
            sandbox=hook_user(pool.sandbox),
        )


def _disk_trouble(data_dir: Path) -> str:
    """Why results could not be kept; empty while they can."""
    try:
        room = disk_room(data_dir)
    except HostUnusable as error:
        return str(error)
    return room.reason if room.state is DiskState.FULL else ""
