"""Where everything that happens meets the core: one queue of events, one place that runs effects.

Owned by agent. Events are handled on the loop, one after the other; an effect that brings about an
event at once only queues it, so the core is never entered twice. Other threads use
`post_from_thread`, which wakes the loop once for many events.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from nodeagent.effects import Effect
from nodeagent.events import Event

Handler: TypeAlias = Callable[[Any], None]


class Core(Protocol):
    """The functional core (nodeagent.state.AgentState)."""

    def handle(self, event: Event, now: float) -> Sequence[Effect]: ...


class Observer(Protocol):
    """Sees everything and changes nothing."""

    def note_event(self, event: Event, now: float) -> None: ...

    def note_effect(self, effect: Effect, now: float) -> None: ...


class Mailbox:
    """`connect` comes before the first event."""

    def __init__(self, core: Core, observer: Observer) -> None:
        self._core = core
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._handlers: dict[type[Effect], Handler] = {}
        self._after: list[Callable[[], None]] = []
        self._events: deque[Event] = deque()
        self._is_draining = False
        self._from_threads: deque[Event] = deque()
        self._is_woken = False
        self._is_closed = False
        self.failed: asyncio.Future[None] = self._loop.create_future()

    def connect(self, handlers: Mapping[type[Effect], Handler]) -> None:
        """Who carries out which effects."""
        twice = self._handlers.keys() & handlers.keys()
        if twice:
            raise AssertionError(f"two handlers for {twice}")
        self._handlers.update(handlers)

    def after_each_round(self, work: Callable[[], None]) -> None:
        """Called when no event is left; for effects that are cheaper in groups."""
        self._after.append(work)

    def post(self, event: Event) -> None:
        """On the loop only."""
        self._events.append(event)
        self.drain()

    def note(self, event: Event) -> None:
        """On the loop only: handled with whatever is posted or drained next."""
        self._events.append(event)

    def post_from_thread(self, event: Event) -> None:
        """From any thread; never waits."""
        self._from_threads.append(event)
        # Set before the loop is woken and cleared before the queue is read: none is missed.
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._collect)

    def fail(self, error: BaseException) -> None:
        """A bug, or the end of what the agent cannot live without; the first one counts."""
        self.close()
        if not self.failed.done():
            self.failed.set_exception(error)

    def close(self) -> None:
        """Whatever happens from now on happens without the core."""
        self._is_closed = True
        self._events.clear()

    def _collect(self) -> None:
        self._is_woken = False
        while self._from_threads:
            self._events.append(self._from_threads.popleft())
        self.drain()

    def drain(self) -> None:
        """Handle everything that is there, on the loop only."""
        if self._is_draining or self._is_closed:
            return
        self._is_draining = True
        try:
            while self._events and not self._is_closed:
                while self._events:
                    self._handle(self._events.popleft())
                for work in self._after:
                    work()
        except Exception as error:  # noqa: BLE001 - a shell edge: whatever the bug, leave in order
            self.fail(error)
        finally:
            self._is_draining = False

    def _handle(self, event: Event) -> None:
        now = time.monotonic()
        self._observer.note_event(event, now)
        for effect in self._core.handle(event, now):
            self._observer.note_effect(effect, now)
            self._handlers[type(effect)](effect)
