"""Open pages share one look per process, quiet ones cost none, and a lost right ends a stream."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from accounts.actors import SYSTEM
from accounts.models import Membership, User
from console.live import board as boards
from console.live.board import Board
from console.live.streams import PageSource, Watch
from console.panels.suite import topics_of
from console.panels.table import PANELS
from console.panels.topics import Shown, Topic
from console.viewer import EVERYTHING, Viewer
from core.errors import DomainError
from suites.models import TaskSuite
from suites.services.pausing import pause_suite
from tests.integration.console.world import World
from tests.integration.workers.inprocess import Site

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_S = 20.0
SLOW_S = 0.1


@pytest.fixture
def site(transactional_db: None) -> Iterator[Site]:
    served = Site()
    yield served
    served.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each kind was built; panels look all the time."""
    counted: Counter[str] = Counter()

    def counting(kind: str, build: Any) -> Any:
        def counted_build(topic: Topic) -> Shown:
            counted[kind] += 1
            return build(topic)

        return counted_build

    for kind, panel in PANELS.items():
        quick = replace(panel, build=counting(kind, panel.build), every_s=0.05)
        monkeypatch.setitem(PANELS, kind, quick)  # type: ignore[arg-type]
    return counted


async def until(check: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not check():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.02)


def test_many_watchers_of_a_suite_cost_one_look_and_hear_of_a_change(
    world: World, site: Site, looks: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite: TaskSuite = world.lab.suite
    # As if it were never too old: what is built again here was built because it changed.
    monkeypatch.setattr(boards, "MAX_AGE_S", 3600.0)

    async def watch() -> None:
        board = Board()
        topic, events = Topic("suite", str(suite.uuid)), [asyncio.Event() for _ in range(50)]
        rounds = Counter[str]()
        stamps = PANELS["suite"].stamps
        assert stamps is not None

        def counted_stamps(uuids: Any) -> dict[str, str]:
            rounds["all"] += 1
            return stamps(uuids)

        monkeypatch.setitem(  # type: ignore[misc]
            PANELS, "suite", replace(PANELS["suite"], stamps=counted_stamps)
        )
        async with AsyncExitStack() as stack:
            feeds = [
                (await stack.enter_async_context(board.watching([topic], event)))[0]
                for event in events
            ]
            await until(lambda: feeds[0].frames)
            await until(lambda: rounds["all"] >= 5)
            assert looks["suite"] == 1
            for event in events:
                event.clear()
            await asyncio.to_thread(_pause, suite)
            await until(lambda: all(event.is_set() for event in events))
            assert b"paused" in feeds[0].frames["progress"].data
            assert looks["suite"] == 2
        await until(lambda: not board._feeds)
        await board.close()

    site.run(watch())


def test_the_end_of_a_task_builds_the_progress_and_nothing_else(
    world: World, site: Site, looks: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "MAX_AGE_S", 3600.0)
    suite: TaskSuite = world.lab.suite

    async def watch() -> None:
        board = Board()
        async with board.watching(topics_of(suite.uuid), asyncio.Event()) as feeds:
            await until(lambda: all(feed.frames for feed in feeds))
            before = Counter(looks)
            await asyncio.to_thread(_count, suite, succeeded=1, failed=0)
            await until(lambda: looks["suite"] > before["suite"])
            assert looks["suite_failures"] == before["suite_failures"]
            assert looks["suite_hosts"] == before["suite_hosts"]
            await asyncio.to_thread(_count, suite, succeeded=0, failed=1)
            await until(lambda: looks["suite_failures"] > before["suite_failures"])
            assert looks["suite_hosts"] == before["suite_hosts"]
        await board.close()

    site.run(watch())


def test_looking_takes_a_bounded_share_of_the_time(
    world: World, site: Site, looks: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panel that takes a tenth of a second, due twenty times a second."""
    slow = replace(PANELS["suite"], stamps=None, build=_slow_build(looks))
    monkeypatch.setitem(PANELS, "suite", slow)  # type: ignore[misc]

    async def watch() -> float:
        board = Board()
        topic = Topic("suite", str(world.lab.suite.uuid))
        async with board.watching([topic], asyncio.Event()):
            await until(lambda: looks["slow"] == 1)
            began = time.monotonic()
            await until(lambda: looks["slow"] == 4)
            took_s = time.monotonic() - began
        await board.close()
        return took_s

    # Three rounds, each with its pause before the next one.
    assert site.run(watch()) >= 3 * boards.pause_after(SLOW_S)


def test_a_page_hears_of_a_change_and_is_told_only_what_changed(
    world: World, site: Site, looks: Counter[str]
) -> None:
    async def read() -> None:
        async with boards.live_board():
            source = _source(world, "reader")
            frames: list[Any] = []
            async with asyncio.timeout(PATIENCE_S):
                while not frames:
                    frames = await source.poll()
                    await source.wait(0.1)
            names = {json.loads(frame.data)["name"] for frame in frames}
            assert {"progress", "hosts", "failures"} <= names
            assert await source.poll() == []
            await source.close()

    site.run(read())


def test_a_stream_ends_with_the_membership_the_account_or_the_flag(
    world: World, site: Site
) -> None:
    reader, staff = world.users["reader"], world.users["staff"]
    member, operator = _source(world, "reader"), _source(world, "staff")
    host = PageSource(reader.pk, Viewer(reader.pk), Watch([], runner_id=world.lab.manager.pk))
    for source in (member, operator, host):
        site.run(source.permit())
    Membership.objects.filter(user=reader).exclude(group__name="ron").delete()
    User.objects.filter(pk=staff.pk).update(is_staff=False)
    for source in (member, operator, host):
        with pytest.raises(DomainError):
            site.run(source.permit())
    locked = PageSource(world.users["locked"].pk, Viewer(0), Watch([]))
    with pytest.raises(DomainError):
        site.run(locked.permit())


def _slow_build(looks: Counter[str]) -> Any:
    def build(_topic: Topic) -> Shown:
        time.sleep(SLOW_S)  # the work itself, in the board's thread
        looks["slow"] += 1
        return Shown({})

    return build


def _count(suite: TaskSuite, *, succeeded: int, failed: int) -> None:
    """What the end of a task adds to its suite's counts."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO suite_count_deltas (suite_id, total, pending, succeeded, failed)"
            " VALUES (%s, 1, 0, %s, %s)",
            [suite.pk, succeeded, failed],
        )
    connection.close()  # of this thread


def _pause(suite: TaskSuite) -> None:
    pause_suite(actor=SYSTEM, suite=suite)
    connection.close()  # of this thread


def _source(world: World, name: str) -> PageSource:
    user = world.users[name]
    viewer = EVERYTHING if user.is_staff else Viewer(user.pk)
    watch = Watch(topics_of(world.lab.suite.uuid), group_id=world.lab.group.pk)
    return PageSource(user.pk, viewer, watch)
