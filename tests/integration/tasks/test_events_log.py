"""The event log: who follows a cursor sees everything once, whenever it was committed."""

import asyncio
import threading

import pytest
from django.db import connection, transaction

from core.errors import InvalidInput
from mitosis_protocol.enums import Outcome, ReportAnswer
from tasks import store
from tasks.enums import EventKind
from tasks.services import events
from tasks.services.counts import fold_counts, suite_counts
from tests.property.lab import Lab, lab_fixture, on_pool, query

lab = pytest.fixture(name="lab")(lab_fixture)


def test_a_tasks_story_is_complete_and_numbered_without_gaps(lab: Lab):
    runner = lab.runner_ids[0]
    task_id = lab.submit_one()
    attempt = lab.claim_attempt(runner)
    lab.start(attempt, runner)
    lab.expire_lease(runner)
    lab.reap()
    lab.adopt([attempt], runner)
    lab.cancel(task_id)
    lab.finish(attempt, runner)
    lab.commit(attempt, runner)
    story = on_pool(lambda: events.read_task_events(task_id, after_seq=0))
    assert [event.seq for event in story] == list(range(1, 9))
    assert [event.kind for event in story] == [
        EventKind.SUBMITTED,
        EventKind.CLAIMED,
        EventKind.STARTED,
        EventKind.REQUEUED,
        EventKind.ADOPTED,
        EventKind.CANCEL_REQUESTED,
        EventKind.FINISHING,
        EventKind.ENDED,
    ]
    assert story[-1].outcome is Outcome.CANCELLED
    assert {event.group_id for event in story} == {lab.group_id}
    rest = on_pool(lambda: events.read_task_events(task_id, after_seq=6, max_events=1))
    assert [event.seq for event in rest] == [7]


def test_a_slow_transaction_never_hides_its_events_from_a_reader(lab: Lab):
    """The slow one draws its ids first and commits last: a cursor over ids would skip it."""
    is_written, may_commit = threading.Event(), threading.Event()
    slow: list[int] = []
    other = _same_suite(lab)

    def submit_slowly() -> None:
        try:
            with transaction.atomic():
                slow.extend(ref.id for ref in other.submit(1, in_suite=True))
                is_written.set()
                may_commit.wait(5)
        finally:
            connection.close()

    thread = threading.Thread(target=submit_slowly)
    thread.start()
    assert is_written.wait(5)
    fast = [ref.id for ref in lab.submit(2, in_suite=True)]
    seen = on_pool(lambda: events.read_suite_events(lab.suite_id, cursor=""))
    assert seen.events == []  # held back: something older may still commit
    may_commit.set()
    thread.join(5)
    page = on_pool(lambda: events.read_suite_events(lab.suite_id, cursor=seen.cursor))
    assert sorted(event.task_id for event in page.events) == sorted(slow + fast)
    ids = query("SELECT id, task_id FROM task_events WHERE suite_id = %s ORDER BY id", lab.suite_id)
    assert ids[0]["task_id"] == slow[0]


def test_a_reader_in_a_storm_of_writers_sees_every_event_once(lab: Lab):
    writers = [_same_suite(lab) for _ in range(4)]

    def write(writer: Lab) -> None:
        try:
            for _ in range(15):
                with transaction.atomic():
                    writer.submit(2, in_suite=True)
        finally:
            connection.close()

    async def follow() -> list[int]:
        cursor, seen = "", []
        deadline = asyncio.get_running_loop().time() + 20
        while asyncio.get_running_loop().time() < deadline:
            page = await events.read_suite_events(lab.suite_id, cursor=cursor, max_events=7)
            seen += [event.task_id for event in page.events]
            cursor = page.cursor
            if page.is_end and not any(thread.is_alive() for thread in threads):
                last = await events.read_suite_events(lab.suite_id, cursor=cursor)
                return seen + [event.task_id for event in last.events]
            await asyncio.sleep(0.002)
        raise AssertionError("the writers did not end")

    threads = [threading.Thread(target=write, args=[writer]) for writer in writers]
    for thread in threads:
        thread.start()
    seen = on_pool(follow)
    stored = query("SELECT id FROM active_tasks WHERE suite_id = %s", lab.suite_id)
    assert len(seen) == len(set(seen))
    assert set(seen) == {row["id"] for row in stored}


def test_a_reader_of_one_group_steps_over_the_others(lab: Lab):
    stranger = Lab(runners=1)
    start = on_pool(events.newest_cursor)
    stranger.submit(5)
    mine = [ref.id for ref in lab.submit(2)]
    stranger.submit(5)

    async def follow() -> list[int]:
        cursor, seen, steps = start, [], 0
        while steps < 10:
            page = await events.read_group_events([lab.group_id], cursor=cursor, max_events=4)
            seen += [event.task_id for event in page.events]
            cursor, steps = page.cursor, steps + 1
            if page.is_end:
                break
        return seen

    assert on_pool(follow) == mine


def test_cursors_from_nowhere_are_refused(lab: Lab):
    for cursor in ("x", "5", "-", "99999999999999999-1"):
        with pytest.raises(InvalidInput, match="cursor"):
            on_pool(lambda cursor=cursor: events.read_suite_events(1, cursor=cursor))


def test_progress_is_logged_only_by_who_holds_the_attempt(lab: Lab):
    task_id = lab.submit_one()
    runner, other = lab.runner_ids[:2]
    attempt = lab.claim_attempt(runner)
    answers = [
        row.answer
        for by in (runner, other, runner)
        for row in store.APPEND_PROGRESS.fetch_sync(
            store.progress_params([(attempt, by, '{"progress": 0.5}')])
        )
    ]
    assert answers == ["ok", "forbidden", "ok"]
    lab.commit(attempt, runner)
    [late] = store.APPEND_PROGRESS.fetch_sync(store.progress_params([(attempt, runner, "{}")]))
    assert late.answer == "stale_attempt"
    assert [kind for _, kind in lab.events(task_id)] == [0, 2, 11, 11, 8]


def test_counters_equal_reality_and_folding_changes_nothing(lab: Lab):
    runner = lab.runner_ids[0]
    lab.submit(7, in_suite=True)
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMEOUT):
        [task] = lab.claim_from_suite(runner).tasks
        assert lab.commit(task.attempt_id, runner, outcome).answer is ReportAnswer.OK
    [task] = lab.claim_from_suite(runner).tasks
    lab.cancel(lab.submit(1, in_suite=True)[0].id)
    before = lab.counts()
    assert before == lab.real_counts()
    assert before == {"total": 8, "pending": 4, "succeeded": 1, "failed": 2, "cancelled": 1}
    assert fold_counts(max_rows=100) >= 5
    assert lab.counts() == before
    assert fold_counts(max_rows=100) == 0
    assert suite_counts([lab.suite_id, 5])[5].total == 0


def test_an_event_of_a_task_cannot_be_written_twice(lab: Lab):
    task_id = lab.submit_one()
    with (
        pytest.raises(Exception, match="task_events_task"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(
            "INSERT INTO task_events (kind, seq, group_id, task_id) VALUES (0, 1, %s, %s)",
            [lab.group_id, task_id],
        )


def _same_suite(lab: Lab) -> Lab:
    """Submits to the same suite without queueing for the counter of the same group."""
    other = Lab(runners=0)
    other.suite_id = lab.suite_id
    return other
