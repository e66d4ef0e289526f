"""Frames to and from the coordinator as effects and events; requests with their timeouts.

The core's requests come back as events; the shell's own (links to a hook's files) have ids from
FIRST_SHELL_REQUEST on and are awaited with `resolve`. Made by agent, driven by the link.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

import structlog

from mitosis_protocol.faults import deliveries
from mitosis_protocol.from_manager import FromManager, Heartbeat, ManagerMetrics, ResolveResources
from mitosis_protocol.specs import RemoteResource
from mitosis_protocol.to_manager import (
    CancelTask,
    Error,
    ReportsAccepted,
    ResolvedResource,
    ResourcesResolved,
    TasksAvailable,
    ToManager,
)
from nodeagent import effects, events
from nodeagent.coordinator.link import Link
from nodeagent.coordinator.pending import Pending
from nodeagent.effects import FIRST_SHELL_REQUEST, Effect
from nodeagent.errors import CoordinatorUnavailable, LinkLost
from nodeagent.events import Event
from nodeagent.shell.mailbox import Handler

log = structlog.stdlib.get_logger(__name__)

Post = Callable[[Event], None]
Measure = Callable[[Heartbeat], ManagerMetrics]

# Delivery points: frames whose loss or repetition has to be survived.
_ARRIVALS: Final[Mapping[type[ToManager], str]] = {
    TasksAvailable: "claim.sent_before_agent_store",
    ReportsAccepted: "finish.ack_lost",
    CancelTask: "cancel.pushed_not_killed",
}


class Correspondence:
    """The listener of the link."""

    def __init__(self, post: Post, manager_uuid: UUID, measure: Measure) -> None:
        self._post = post
        self.manager_uuid = manager_uuid
        self._measure = measure
        self._link: Link | None = None
        self._session = 0
        self._asked: Pending[None] = Pending()
        self._own: Pending[_Links] = Pending()
        self._next_own = FIRST_SHELL_REQUEST

    def handlers(self) -> Mapping[type[Effect], Handler]:
        return {effects.SendFrame: self._on_send, effects.SendHeartbeat: self._on_heartbeat}

    def use(self, link: Link) -> None:
        """The link that calls the `on_` methods below."""
        self._link = link

    @property
    def session(self) -> int:
        """Counts connections: what was meant for an earlier one must not go out on a later one."""
        return self._session

    def send(self, message: FromManager) -> None:
        """Now, or never: without a connection the frame is dropped, and the core knows why."""
        request_id = message.request_id
        if self._link is None:
            return
        try:
            self._link.send(message)
        except LinkLost:
            return
        except ValueError:
            log.exception("frame.too_large", kind=type(message).__name__)
            self.give_up(request_id)
            return
        if request_id is not None and request_id < FIRST_SHELL_REQUEST:
            self._asked.ask(request_id, None, time.monotonic())

    def give_up(self, request_id: int | None) -> None:
        """No answer will come although the link is up."""
        if request_id is not None:
            self._post(events.RequestTimedOut(request_id))

    def expire(self) -> None:
        """Called with every tick."""
        now = time.monotonic()
        for request_id, _ in self._asked.expire(now):
            log.warning("request.timed_out", request_id=request_id)
            self._post(events.RequestTimedOut(request_id))
        for _, links in self._own.expire(now):
            links.fail(CoordinatorUnavailable("no answer within 30 s"))

    async def resolve(
        self, assignment_id: int, resources: Sequence[RemoteResource]
    ) -> list[ResolvedResource]:
        """Links to the files of a hook. Raises LinkLost, CoordinatorUnavailable."""
        if self._link is None or not self._link.is_up:
            raise LinkLost("not connected")
        request_id, self._next_own = self._next_own, self._next_own + 1
        links = _Links()
        self._own.ask(request_id, links, time.monotonic())
        self.send(
            ResolveResources(
                request_id=request_id, resources=list(resources), assignment_id=assignment_id
            )
        )
        return await links.all

    def on_link_up(self) -> None:
        self._session += 1
        self._post(events.LinkUp(self.manager_uuid))

    def on_frame(self, message: ToManager) -> None:
        point = _ARRIVALS.get(type(message))
        for _ in range(1 if point is None else deliveries(point)):
            self._take(message)

    def _take(self, message: ToManager) -> None:
        request_id: int | None = getattr(message, "request_id", None)
        if request_id is not None and request_id >= FIRST_SHELL_REQUEST:
            self._take_own(request_id, message)
            return
        if request_id is not None and not getattr(message, "has_more", False):
            self._asked.settle(request_id)
        self._post(events.FrameReceived(message))

    def on_link_lost(self, reason: str) -> None:
        self._asked.drop_all()
        for links in self._own.drop_all():
            links.fail(LinkLost(reason))
        self._post(events.LinkLost(reason))

    def _on_send(self, effect: effects.SendFrame) -> None:
        self.send(effect.message)

    def _on_heartbeat(self, effect: effects.SendHeartbeat) -> None:
        beat = effect.message
        metrics = self._measure(beat)
        self.send(_with_metrics(beat, metrics))

    def _take_own(self, request_id: int, message: ToManager) -> None:
        links = self._own.find(request_id)
        if links is None:
            return
        if isinstance(message, ResourcesResolved):
            links.add(message.resources)
            if message.has_more:
                return
            links.finish()
        else:
            reason = message.message if isinstance(message, Error) else type(message).__name__
            links.fail(CoordinatorUnavailable(f"no links: {reason}"))
        self._own.settle(request_id)


class _Links:
    """An answer that may come in several frames."""

    def __init__(self) -> None:
        self._parts: list[ResolvedResource] = []
        self.all: asyncio.Future[list[ResolvedResource]] = (
            asyncio.get_running_loop().create_future()
        )

    def add(self, part: Sequence[ResolvedResource]) -> None:
        self._parts.extend(part)

    def finish(self) -> None:
        if not self.all.done():
            self.all.set_result(self._parts)

    def fail(self, error: Exception) -> None:
        # Done already when whoever asked was cancelled.
        if not self.all.done():
            self.all.set_exception(error)


def _with_metrics(beat: Heartbeat, metrics: ManagerMetrics) -> Heartbeat:
    return Heartbeat(
        manager_uuid=beat.manager_uuid,
        state=beat.state,
        metrics=metrics,
        request_id=beat.request_id,
        assignment_id=beat.assignment_id,
        inventory=beat.inventory,
        config_version=beat.config_version,
    )
