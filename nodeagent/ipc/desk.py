"""The half of an IPC server that knows no transport: who asked what, who holds which attempt.

Fetches are answered here, on the thread that heard them, straight from the shelf; everything else
becomes an event for the agent. Base of iceoryx_server and unix_server, which move the bytes. One
lock guards all of it; an answer and the event about it happen under the same lock, so the agent
never hears of a report before it heard that the attempt was taken.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import structlog

from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.faults import fault
from mitosis_protocol.ipc import (
    CancelTask,
    Control,
    CrashTask,
    Done,
    DropTask,
    FetchReply,
    FetchTask,
    FinishTask,
    FromWorker,
    Heartbeat,
    NoteEvents,
    Ready,
    Refused,
    Shutdown,
    ToWorker,
    WorkerSettings,
    WorkItem,
)
from nodeagent.ipc.crowd import Crowd
from nodeagent.ipc.customer import Asked, Customer, Line, Undeliverable, count_up
from nodeagent.ipc.payloads import FROM_WORKER, Unreadable
from nodeagent.ipc.server import (
    IpcEvent,
    IpcStats,
    OfferTaken,
    RequestToken,
    ServiceName,
    WorkerAsked,
    WorkerKey,
    WorkerParked,
    WorkerReady,
)
from nodeagent.ipc.shelf import Shelf

log = structlog.stdlib.get_logger(__name__)

_LATENCY_WINDOW: Final = 1024
_MOST_HELD: Final = 2  # by one worker: what it runs, and one ahead
_LAST_WORDS: Final = (FinishTask, CrashTask, DropTask)
# Which messages each service carries: a message on the wrong one is not understood.
_SPOKEN_ON: Final[dict[type[FromWorker], ServiceName]] = {
    FetchTask: "fetch",
    Ready: "heartbeat",
    Heartbeat: "heartbeat",
}


class Desk:
    """Shelf, requests and holdings of all workers of one agent."""

    def __init__(self, root: Path) -> None:
        self._lock = threading.RLock()
        self._shelf = Shelf()
        self._customers: dict[WorkerKey, Customer] = {}
        self._on_event: Callable[[IpcEvent], None] = lambda _event: None
        self._counts: Counter[str] = Counter()
        self._latencies: deque[float] = deque(maxlen=_LATENCY_WINDOW)
        self._crowd = Crowd(root)

    # Called by the agent, from any thread

    def put(self, items: Sequence[WorkItem], *, at_front: bool = False) -> None:
        with self._lock:
            self._shelf.put(items, at_front=at_front)
            self._serve_parked()

    def withdraw(self, at_most: int) -> list[int]:
        with self._lock:
            return self._shelf.withdraw(at_most)

    def remove(self, attempt_ids: Collection[int]) -> list[int]:
        with self._lock:
            return self._shelf.remove(attempt_ids)

    def set_serving(self, is_serving: bool) -> None:
        with self._lock:
            self._shelf.is_serving = is_serving
            self._serve_parked()

    def dismiss(self, worker: WorkerKey) -> None:
        with self._lock:
            if worker not in self._customers:
                return
            self._shelf.dismiss(worker)
            request_id = self._shelf.unpark(worker)
            if request_id is not None:
                self._answer(
                    self._customers[worker],
                    "fetch",
                    FetchReply(request_id=request_id, is_over=True),
                )

    def reply(self, token: RequestToken, answer: ToWorker) -> None:
        with self._lock:
            customer = self._customers.get(token.worker)
            if customer is not None:
                self._answer(customer, token.service, answer)

    def stats(self) -> IpcStats:
        with self._lock:
            return count_up(self._counts, self._latencies, self._shelf, self._customers.values())

    # Called by the transport, which holds the lock

    def _admit(self, customer: Customer) -> None:
        self._customers[customer.key] = customer
        self._crowd.count(len(self._customers))

    def _audience(self, message: Control | WorkerSettings) -> list[Customer]:
        """Whom it concerns. A graceful shutdown also ends the waiting of parked workers."""
        everybody = list(self._customers.values())
        if isinstance(message, CancelTask):
            return [one for one in everybody if message.attempt_id in one.held]
        if not isinstance(message, Shutdown):
            return everybody
        meant = [one for one in everybody if message.worker in (None, one.key.local_id)]
        for customer in meant:
            self.dismiss(customer.key)
        return meant

    def _discharge(self, key: WorkerKey) -> Customer | None:
        customer = self._customers.pop(key, None)
        if customer is not None:
            self._shelf.forget(key)
            self._counts["spilled"] += customer.payloads.spilled
            customer.asked.clear()
            self._crowd.count(len(self._customers))
        return customer

    def _heard(self, customer: Customer, service: ServiceName, data: bytes, line: Line) -> None:
        """One request of one worker. Whatever it holds, the worker speaks for itself only."""
        started = time.perf_counter()
        self._counts["requests"] += 1
        customer.heard_at = now = time.monotonic()
        try:
            message = FROM_WORKER.decode(customer.payloads.unpack(data))
        except Unreadable as error:
            self._refuse_unread(customer, line, str(error))
            return
        key = (service, message.request_id)
        if _SPOKEN_ON.get(type(message), "report") != service or key in customer.asked:
            self._refuse_unread(customer, line, f"{type(message).__name__} out of place")
            return
        customer.asked[key] = _asked(message, line)
        if isinstance(message, FinishTask):
            customer.ends(now)
        if isinstance(message, FetchTask):
            self._fetch(customer, message, started)
        elif isinstance(message, Ready):
            self._answer(customer, service, Done(request_id=message.request_id))
            self._became_ready(customer)
            self._on_event(WorkerReady(customer.key, message.pid, message.trouble))
        elif isinstance(message, Heartbeat):
            self._beat(customer, message)
        else:
            self._report(customer, service, message)

    def _became_ready(self, customer: Customer) -> None:
        """It has said its first word; for what a transport does only until then."""

    # Requests

    def _fetch(self, customer: Customer, message: FetchTask, started: float) -> None:
        self._counts["fetches"] += 1
        request_id = message.request_id
        if self._shelf.is_dismissed(customer.key):
            self._answer(customer, "fetch", FetchReply(request_id=request_id, is_over=True))
            return
        item = self._shelf.take()
        if item is None:
            # A newer fetch takes the place of one whose answer nobody waits for any more.
            for stale in [k for k in customer.asked if k[0] == "fetch" and k[1] != request_id]:
                del customer.asked[stale]
            self._shelf.park(customer.key, request_id)
            self._on_event(WorkerParked(customer.key))
            return
        self._hand_out(customer, request_id, item)
        self._latencies.append(time.perf_counter() - started)

    def _serve_parked(self) -> None:
        for worker, request_id, item in self._shelf.matches():
            self._hand_out(self._customers[worker], request_id, item)

    def _hand_out(self, customer: Customer, request_id: int, item: WorkItem) -> None:
        self._deliver(
            customer,
            [item],
            lambda: self._answer(customer, "fetch", FetchReply(request_id=request_id, item=item)),
        )

    def _deliver(
        self, customer: Customer, items: Sequence[WorkItem], send: Callable[[], bool]
    ) -> bool:
        had_some = bool(customer.held)
        attempt_ids = [item.task.task_id for item in items]
        # Before they are sent: the worker may report one at once.
        customer.held.update(attempt_ids)
        fault("ipc.after_pop_before_reply")
        if not send():
            customer.held.difference_update(attempt_ids)
            self._shelf.put(items, at_front=True)
            return False
        if not had_some:
            customer.begins(time.monotonic())
        for at, attempt_id in enumerate(attempt_ids):
            self._on_event(OfferTaken(customer.key, attempt_id, is_ahead=had_some or at > 0))
        return True

    def _beat(self, customer: Customer, message: Heartbeat) -> None:
        self._counts["heartbeats"] += 1
        if message.attempt_id not in customer.held:
            # Sent while its last word on the attempt was on the way; not worth a refusal.
            message = msgspec.structs.replace(message, attempt_id=None)
        token = RequestToken(customer.key, message.request_id, "heartbeat")
        self._on_event(WorkerAsked(token, message))

    def _report(self, customer: Customer, service: ServiceName, message: FromWorker) -> None:
        self._counts["reports"] += 1
        if not _attempts_of(message) <= customer.held:
            self._counts["refused"] += 1
            log.warning(
                "ipc.foreign_attempt",
                worker=customer.key.local_id,
                message=type(message).__name__,
                attempts=sorted(_attempts_of(message) - customer.held)[:8],
            )
            self._answer(
                customer,
                service,
                Refused(
                    request_id=message.request_id,
                    code=ErrorCode.TASK_STALE_ATTEMPT,
                    message="this attempt was not handed to this worker",
                    is_gone=True,
                ),
            )
            return
        token = RequestToken(customer.key, message.request_id, service)
        self._on_event(WorkerAsked(token, message))

    # Answers

    def _answer(self, customer: Customer, service: ServiceName, answer: ToWorker) -> bool:
        """False if nobody waits for it, or the worker cannot be reached."""
        asked = customer.asked.pop((service, answer.request_id), None)
        if asked is None:
            self._counts["undelivered"] += 1
            return False
        if asked.settles is not None and _is_settling(answer):
            customer.held.discard(asked.settles)
        if asked.wants_next and isinstance(answer, Done):
            return self._answer_with_next(customer, asked, answer)
        return self._send(customer, asked, answer)

    def _answer_with_next(self, customer: Customer, asked: Asked, answer: Done) -> bool:
        items = list(self._take_along(customer))
        if not items:
            return self._send(customer, asked, answer)
        self._counts["fetches"] += len(items)
        both = Done(request_id=answer.request_id, next_items=items)
        return self._deliver(customer, items, lambda: self._send(customer, asked, both))

    def _take_along(self, customer: Customer) -> Iterator[WorkItem]:
        """What it runs next; and one ahead while its tasks are quick and nobody misses it."""
        if self._shelf.is_dismissed(customer.key):
            return
        is_plenty = len(self._shelf) > len(self._customers)
        room = _MOST_HELD if customer.is_quick and is_plenty else 1
        for _ in range(room - len(customer.held)):
            item = self._shelf.take()
            if item is None:
                return
            yield item

    def _send(self, customer: Customer, asked: Asked, answer: ToWorker) -> bool:
        try:
            asked.line.send(customer.payloads.pack(answer), is_urgent=not asked.is_patient)
        except (Undeliverable, OSError) as error:
            self._counts["undelivered"] += 1
            log.info("ipc.undelivered", worker=customer.key.local_id, error=str(error))
            return False
        self._counts["answers"] += 1
        return True

    def _refuse_unread(self, customer: Customer, line: Line, why: str) -> None:
        self._counts["refused"] += 1
        log.warning("ipc.not_understood", worker=customer.key.local_id, error=why)
        refusal = Refused(request_id=0, code=ErrorCode.PROTOCOL_MALFORMED, message=why)
        try:
            line.send(customer.payloads.pack(refusal))
        except (Undeliverable, OSError):
            self._counts["undelivered"] += 1


def _asked(message: FromWorker, line: Line) -> Asked:
    settles = message.attempt_id if isinstance(message, _LAST_WORDS) else None
    if not isinstance(message, FinishTask):
        return Asked(line, settles)
    return Asked(line, settles, wants_next=message.wants_next, is_patient=message.is_patient)


def _is_settling(answer: ToWorker) -> bool:
    return isinstance(answer, Done) or (isinstance(answer, Refused) and answer.is_gone)


def _attempts_of(message: FromWorker) -> set[int]:
    if isinstance(message, NoteEvents):
        return {event.task_id for event in message.events}
    attempt_id = getattr(message, "attempt_id", None)
    return set() if attempt_id is None else {attempt_id}
