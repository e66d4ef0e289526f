"""What all open pages of this process look at: each topic is read once, however many watch it.

One task on the event loop finds out what is due; one thread reads it, all due topics after each
other, on one connection that goes back to the pool in between. Where a panel has stamps, one
statement tells which of its topics changed, and only those are built. Nobody watching: no work.
However many pages are open, looking for them takes a bounded share of one core: then news come
later instead of keeping managers waiting.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec
import structlog
from django.db import DatabaseError, connection

from console.panels.table import PANELS, build
from console.panels.topics import Shown, Topic
from core.errors import DomainError
from tasks.event_stream import Frame

log = structlog.get_logger(__name__)

REGION: Final = "region"
DATA: Final = "data"
_encoder: Final = msgspec.json.Encoder()
MAX_AGE_S: Final = 15.0  # a topic whose stamp stays the same is built again after this long
PAUSE_S: Final = 0.1  # the least time between two rounds
MAX_SHARE: Final = 0.15  # of the time may be spent looking, by us and the database together
TROUBLE_PAUSE_S: Final = 2.0  # before the database is asked again


@dataclass(slots=True)
class Feed:
    """The newest of one topic. A region's version grows each time its content changes."""

    topic: Topic
    versions: dict[str, int] = field(default_factory=dict)
    frames: dict[str, Frame] = field(default_factory=dict)
    due: float = 0.0
    built: float = 0.0
    stamp: str | None = None
    is_gone: bool = False
    watchers: set[asyncio.Event] = field(default_factory=set)

    def take(self, contents: dict[str, Frame]) -> None:
        """What a look brought; watchers are woken if it is news."""
        is_news = False
        for name, frame in contents.items():
            if self.frames.get(name) != frame:
                self.frames[name] = frame
                self.versions[name] = self.versions.get(name, 0) + 1
                is_news = True
        if is_news:
            self.wake()

    def wake(self) -> None:
        for event in self.watchers:
            event.set()


@dataclass(frozen=True, slots=True)
class _Look:
    """What the thread found for one topic; contents None: nothing new."""

    stamp: str | None
    contents: dict[str, Frame] | None = None
    is_gone: bool = False


class Board:
    """The feeds of one process, on one event loop."""

    def __init__(self) -> None:
        self._feeds: dict[Topic, Feed] = {}
        self._round: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watching(
        self, topics: Sequence[Topic], news: asyncio.Event
    ) -> AsyncIterator[list[Feed]]:
        """Keep the topics up to date while the block runs; `news` is set when one changes."""
        feeds = [self._feeds.setdefault(topic, Feed(topic)) for topic in topics]
        for feed in feeds:
            feed.watchers.add(news)
        self._start()
        try:
            yield feeds
        finally:
            for feed in feeds:
                feed.watchers.discard(news)
                if not feed.watchers:
                    self._feeds.pop(feed.topic, None)

    async def close(self) -> None:
        running, self._round = self._round, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _start(self) -> None:
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._rounds())
            self._round.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """After a bug of our own pages must not look alive: their streams end and come back."""
        if task.cancelled() or task.exception() is None:
            return
        log.error("console.board_failed", exc_info=task.exception())
        for feed in list(self._feeds.values()):
            feed.is_gone = True
            feed.wake()

    async def _rounds(self) -> None:
        while self._feeds:
            now = time.monotonic()
            due = [feed for feed in self._feeds.values() if feed.due <= now]
            pause_s = PAUSE_S
            if due:
                pause_s = await self._refresh(due, now)
            await asyncio.sleep(pause_s)

    async def _refresh(self, due: list[Feed], now: float) -> float:
        asked = [(feed.topic, feed.stamp, now - feed.built >= MAX_AGE_S) for feed in due]
        try:
            looks = await asyncio.to_thread(_look_at_all, asked)
        except (DatabaseError, DomainError) as error:
            # Pages keep what they show until the database is back.
            log.warning("console.board_waits", reason=type(error).__name__)
            return TROUBLE_PAUSE_S
        took_s = time.monotonic() - now
        for feed, look in zip(due, looks, strict=True):
            feed.due = now + PANELS[feed.topic.kind].every_s
            feed.stamp = look.stamp
            if look.is_gone:
                feed.is_gone = True
                feed.wake()
            elif look.contents is not None:
                feed.built = now
                feed.take(look.contents)
        return pause_after(took_s)


def pause_after(took_s: float) -> float:
    """How long to leave everybody alone after a round that took so long."""
    return max(PAUSE_S, took_s * (1 / MAX_SHARE - 1))


def _look_at_all(asked: list[tuple[Topic, str | None, bool]]) -> list[_Look]:
    """In a thread: all due topics, one after the other."""
    try:
        stamps = _stamps([topic for topic, _, _ in asked])
        return [
            _look_at(topic, before, stamps.get(topic), is_old=is_old)
            for topic, before, is_old in asked
        ]
    finally:
        connection.close()


def _stamps(topics: Sequence[Topic]) -> dict[Topic, str]:
    """One statement per kind that has stamps."""
    found: dict[Topic, str] = {}
    for kind in {topic.kind for topic in topics}:
        reader = PANELS[kind].stamps
        if reader is not None:
            own = [topic for topic in topics if topic.kind == kind]
            texts = reader({topic.target for topic in own})
            found |= {topic: texts[topic.target] for topic in own if topic.target in texts}
    return found


def _look_at(topic: Topic, before: str | None, stamp: str | None, *, is_old: bool) -> _Look:
    if stamp is not None and stamp == before and not is_old:
        return _Look(stamp)
    try:
        shown = build(topic)
    except DatabaseError:
        raise
    except DomainError as error:
        if error.retryable:
            raise
        return _Look(stamp, is_gone=True)
    except Exception:
        # The edge of this thread: a bug in one panel must not blind the pages of all others.
        log.exception("console.panel_failed", kind=topic.kind)
        return _Look(stamp, is_gone=True)
    return _Look(stamp, _frames(shown))


def _frames(shown: Shown) -> dict[str, Frame]:
    """Encoded once, here in the thread, however many read them."""
    # Django marks what is safe by a class of its own, which msgspec does not know.
    regions = {
        name: Frame(REGION, _encoder.encode({"name": name, "html": str.__str__(html)}))
        for name, html in shown.html.items()
    }
    data = {
        f"data:{name}": Frame(DATA, _encoder.encode({"name": name, "value": value}))
        for name, value in shown.data.items()
    }
    return {**regions, **data}


_board: Board | None = None


@asynccontextmanager
async def live_board() -> AsyncIterator[None]:
    """Opened with the serving process, closed with it."""
    global _board  # noqa: PLW0603 - one per process, owned by the lifespan
    _board = Board()
    try:
        yield
    finally:
        board, _board = _board, None
        await board.close()


def get_board() -> Board:
    if _board is None:
        raise RuntimeError("the board is not open: live_board() has not been entered")
    return _board
