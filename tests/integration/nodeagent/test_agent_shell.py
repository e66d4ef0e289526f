"""Between the core and the world: the mailbox, frames and timeouts, results and the disk."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, get_args
from uuid import UUID, uuid4

import pytest

from mitosis_protocol.enums import ManagerState
from mitosis_protocol.from_manager import (
    FetchTasks,
    FromManager,
    Heartbeat,
    ManagerMetrics,
    ReportTasks,
)
from mitosis_protocol.manager_reports import TaskReport
from mitosis_protocol.specs import AttachmentRef, RemoteResource
from mitosis_protocol.to_manager import Error, ResolvedResource, ResourcesResolved, TasksAvailable
from nodeagent import effects, events
from nodeagent.coordinator.pending import Pending
from nodeagent.effects import FIRST_SHELL_REQUEST, Effect
from nodeagent.errors import CoordinatorUnavailable, HostUnusable, LinkLost
from nodeagent.events import Event
from nodeagent.outbox import Outbox
from nodeagent.shell.chores import Chores
from nodeagent.shell.correspondence import Correspondence
from nodeagent.shell.hooks import Hooks
from nodeagent.shell.mailbox import Mailbox
from nodeagent.shell.results import Results
from nodeagent.shell.watched_tasks import WatchedTasks
from nodeagent.shell.workers import Workers

MANAGER = uuid4()


class Silent:
    def note_event(self, event: Event, now: float) -> None: ...

    def note_effect(self, effect: Effect, now: float) -> None: ...


class ScriptedCore:
    """Answers events with effects of a table, and notes the order."""

    def __init__(self, table: dict[type[Event], Sequence[Effect]]) -> None:
        self.table = table
        self.seen: list[Event] = []
        self.depth = 0

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        self.depth += 1
        assert self.depth == 1, "the core was entered twice"
        self.seen.append(event)
        self.depth -= 1
        return self.table.get(type(event), ())


class RecordingLink:
    """A link that is up and keeps what it is given."""

    def __init__(self) -> None:
        self.is_up = True
        self.sent: list[FromManager] = []

    def send(self, message: FromManager) -> None:
        if not self.is_up:
            raise LinkLost("down")
        self.sent.append(message)


def correspondence(posted: list[Event]) -> tuple[Correspondence, RecordingLink]:
    link = RecordingLink()
    found = Correspondence(posted.append, MANAGER, lambda _beat: ManagerMetrics(active_workers=3))
    found.use(cast("Any", link))
    found.on_link_up()
    return found, link


def line(task_id: int = 1) -> TaskReport:
    return TaskReport(task_id=task_id, op="commit", op_id=uuid4())


def sync_and_send(request_id: int, report: TaskReport) -> effects.SyncAndSend:
    return effects.SyncAndSend(ReportTasks(request_id=request_id, reports=[report]))


async def until(check: Callable[[], bool], within_s: float = 30) -> None:
    deadline = asyncio.get_running_loop().time() + within_s
    while not check():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


# The mailbox


async def test_every_effect_has_exactly_one_handler() -> None:
    nothing = cast("Any", None)
    chores = Chores(lambda _error: None)
    talk, _ = correspondence([])
    parts = [
        talk,
        Results(nothing, nothing, talk),
        Workers(nothing, nothing, cast("Any", _Pool()), chores, nothing),
        Hooks(nothing, nothing, nothing, nothing, talk, chores),
        WatchedTasks(nothing, nothing, nothing, chores),
    ]
    mailbox = Mailbox(ScriptedCore({}), Silent())
    handled: set[type[Effect]] = set()
    for part in parts:
        mailbox.connect(part.handlers())  # refuses a second handler
        handled |= part.handlers().keys()
    of_the_agent = {effects.Note, effects.Exit, effects.ScheduleFlush}
    assert handled | of_the_agent == set(get_args(Effect))
    assert handled.isdisjoint(of_the_agent)


class _Pool:
    on_exit = None


async def test_an_effect_that_posts_an_event_does_not_enter_the_core_again() -> None:
    core = ScriptedCore(
        {
            events.Tick: [effects.Withdraw(1), effects.SetServing(True)],
            events.Withdrawn: [effects.Remove((7,))],
        }
    )
    mailbox = Mailbox(core, Silent())
    done: list[str] = []

    def withdraw(_effect: Effect) -> None:
        mailbox.post(events.Withdrawn((7,)))
        done.append("withdraw")

    mailbox.connect(
        {effects.Withdraw: withdraw, effects.SetServing: lambda _e: done.append("serve")}
    )
    mailbox.connect({effects.Remove: lambda _e: done.append("remove")})
    mailbox.post(events.Tick())
    # What follows from an event comes after everything that was decided before it.
    assert done == ["withdraw", "serve", "remove"]
    assert core.seen == [events.Tick(), events.Withdrawn((7,))]


async def test_events_of_other_threads_arrive_in_order_and_none_is_missed() -> None:
    core = ScriptedCore({})
    mailbox = Mailbox(core, Silent())
    count = 5000

    def produce() -> None:
        for n in range(count):
            mailbox.post_from_thread(events.Withdrawn((n,)))

    thread = threading.Thread(target=produce)
    thread.start()
    await until(lambda: len(core.seen) == count)
    thread.join()
    assert core.seen == [events.Withdrawn((n,)) for n in range(count)]


async def test_what_was_noted_is_handled_in_one_round() -> None:
    core = ScriptedCore({})
    mailbox = Mailbox(core, Silent())
    rounds: list[int] = []
    mailbox.after_each_round(lambda: rounds.append(len(core.seen)))
    for n in range(3):
        mailbox.note(events.Withdrawn((n,)))
    assert core.seen == []
    mailbox.drain()
    assert core.seen == [events.Withdrawn((n,)) for n in range(3)]
    assert rounds == [3]
    mailbox.drain()  # a ring without a message
    assert rounds == [3]


async def test_a_bug_ends_the_agent_instead_of_being_swallowed() -> None:
    mailbox = Mailbox(ScriptedCore({events.Tick: [effects.SetServing(True)]}), Silent())

    def fail(_effect: Effect) -> None:
        raise RuntimeError("a bug")

    mailbox.connect({effects.SetServing: fail})
    mailbox.post(events.Tick())
    with pytest.raises(RuntimeError, match="a bug"):
        await mailbox.failed
    mailbox.post(events.Tick())  # nothing happens any more


async def test_a_bug_in_the_background_is_told_too() -> None:
    told: list[BaseException] = []
    chores = Chores(told.append)

    async def fail() -> None:
        raise RuntimeError("a bug")

    chores.start(fail())
    chores.start(asyncio.sleep(60))
    await asyncio.sleep(0.01)
    assert [str(error) for error in told] == ["a bug"]
    await chores.close()


# Frames


async def test_an_unanswered_request_times_out_and_a_late_answer_is_passed_on() -> None:
    posted: list[Event] = []
    talk, link = correspondence(posted)
    talk._asked = Pending(timeout_s=0.05)
    talk.send(FetchTasks(request_id=1, max_tasks=1))
    talk.send(FetchTasks(request_id=2, max_tasks=1))
    talk.on_frame(TasksAvailable(request_id=2, has_more=True))
    talk.on_frame(TasksAvailable(request_id=2))
    await asyncio.sleep(0.1)
    posted.clear()
    talk.expire()
    assert posted == [events.RequestTimedOut(1)]
    assert [message.request_id for message in link.sent] == [1, 2]


async def test_a_frame_that_cannot_be_sent_is_answered_by_a_timeout_or_by_the_loss() -> None:
    posted: list[Event] = []
    talk, link = correspondence(posted)
    posted.clear()
    link.send = _too_large  # type: ignore[method-assign]
    talk.send(FetchTasks(request_id=1, max_tasks=1))
    assert posted == [events.RequestTimedOut(1)]
    posted.clear()
    link.is_up = False
    link.send = RecordingLink.send.__get__(link)  # type: ignore[method-assign]
    talk.send(FetchTasks(request_id=2, max_tasks=1))
    talk.on_link_lost("gone")
    assert posted == [events.LinkLost("gone")]


def _too_large(_message: FromManager) -> None:
    raise ValueError("the message has 300000 bytes, at most 262144 fit")


async def test_links_of_a_hook_come_in_several_frames_and_stay_in_the_shell() -> None:
    posted: list[Event] = []
    talk, link = correspondence(posted)
    posted.clear()
    asking = asyncio.create_task(talk.resolve(5, [RemoteResource(attachment=AttachmentRef("k"))]))
    await asyncio.sleep(0)
    request_id = link.sent[0].request_id
    assert request_id is not None
    assert request_id >= FIRST_SHELL_REQUEST
    parts = [ResolvedResource(url="http://a"), ResolvedResource(url="http://b")]
    talk.on_frame(ResourcesResolved(request_id=request_id, resources=parts[:1], has_more=True))
    talk.on_frame(ResourcesResolved(request_id=request_id, resources=parts[1:]))
    assert await asking == parts
    assert posted == []


async def test_links_that_do_not_come_are_an_error_of_whoever_asked() -> None:
    talk, link = correspondence([])
    file = [RemoteResource(attachment=AttachmentRef("k"))]
    asking = asyncio.create_task(talk.resolve(5, file))
    await asyncio.sleep(0)
    refused = Error(code="internal", message="no", request_id=link.sent[0].request_id)  # type: ignore[arg-type]
    talk.on_frame(refused)
    with pytest.raises(CoordinatorUnavailable, match="no links: no"):
        await asking
    asking = asyncio.create_task(talk.resolve(5, file))
    await asyncio.sleep(0)
    talk.on_link_lost("gone")
    with pytest.raises(LinkLost, match="gone"):
        await asking
    link.is_up = False
    with pytest.raises(LinkLost):
        await talk.resolve(5, file)


async def test_heartbeats_carry_the_measurements() -> None:
    talk, link = correspondence([])
    beat = Heartbeat(manager_uuid=MANAGER, state=ManagerState.IDLE, metrics=ManagerMetrics(),
                     request_id=9, inventory=[1], config_version=4)  # fmt: skip
    talk.handlers()[effects.SendHeartbeat](effects.SendHeartbeat(beat))
    [sent] = link.sent
    assert isinstance(sent, Heartbeat)
    assert sent.metrics.active_workers == 3
    assert (sent.request_id, sent.inventory, sent.config_version) == (9, [1], 4)


# Results


class CountingOutbox(Outbox):
    """A real outbox whose syncs are counted, and can be held up or made to fail."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.syncs: list[set[UUID]] = []
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.fails = False

    def sync(self) -> None:
        self.may_sync.wait(20)
        if self.fails:
            raise HostUnusable("no disk")
        self.syncs.append({entry.op_id for entry in self.pending()})
        super().sync()


async def test_results_of_one_round_are_stored_together_before_anybody_hears_of_it(
    tmp_path: Path,
) -> None:
    posted: list[Event] = []
    talk, _ = correspondence([])
    outbox = CountingOutbox(tmp_path / "o.sqlite")
    results = Results(posted.append, outbox, talk)
    lines = [line(1), line(2)]
    for report in lines:
        results.handlers()[effects.StoreResult](effects.StoreResult(report))
    assert (posted, outbox.pending()) == ([], [])
    results.store_collected()
    assert [entry.report for entry in outbox.pending()] == lines
    assert posted == [events.ResultStored(report.op_id) for report in lines if report.op_id]
    results.handlers()[effects.ForgetResults](effects.ForgetResults((lines[0].op_id,)))  # type: ignore[arg-type]
    assert [entry.report for entry in outbox.pending()] == lines[1:]
    outbox.close()


async def test_nothing_is_sent_before_it_is_on_the_disk_and_groups_share_a_sync(
    tmp_path: Path,
) -> None:
    talk, link = correspondence([])
    outbox = CountingOutbox(tmp_path / "o.sqlite")
    results = Results(lambda _event: None, outbox, talk)
    running = asyncio.create_task(results.run())
    outbox.may_sync.clear()
    send = results.handlers()[effects.SyncAndSend]
    send(sync_and_send(1, line(1)))
    await asyncio.sleep(0.05)
    send(sync_and_send(2, line(2)))
    send(sync_and_send(3, line(3)))
    await asyncio.sleep(0.05)
    assert link.sent == []
    outbox.may_sync.set()
    await until(lambda: len(link.sent) == 3)
    assert [message.request_id for message in link.sent] == [1, 2, 3]
    assert len(outbox.syncs) == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    outbox.close()


async def test_what_was_synced_for_an_earlier_socket_does_not_go_out_on_the_next(
    tmp_path: Path,
) -> None:
    """A report before the hello would be refused; the core sends it again by itself."""
    talk, link = correspondence([])
    outbox = CountingOutbox(tmp_path / "o.sqlite")
    results = Results(lambda _event: None, outbox, talk)
    running = asyncio.create_task(results.run())
    outbox.may_sync.clear()
    send = results.handlers()[effects.SyncAndSend]
    send(sync_and_send(1, line(1)))
    await asyncio.sleep(0.05)
    talk.on_link_lost("blip")
    talk.on_link_up()
    send(sync_and_send(2, line(2)))
    outbox.may_sync.set()
    await until(lambda: bool(link.sent))
    await asyncio.sleep(0.05)
    assert [message.request_id for message in link.sent] == [2]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    outbox.close()


async def test_a_disk_that_does_not_sync_keeps_the_report_here(tmp_path: Path) -> None:
    posted: list[Event] = []
    talk, link = correspondence(posted)
    outbox = CountingOutbox(tmp_path / "o.sqlite")
    outbox.fails = True
    results = Results(posted.append, outbox, talk)
    running = asyncio.create_task(results.run())
    results.handlers()[effects.SyncAndSend](sync_and_send(1, line(1)))
    await until(lambda: events.RequestTimedOut(1) in posted)
    assert link.sent == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    outbox.close()
