"""The life of a worker: a heartbeat that nothing delays, and fetch, run, report in turn.

Called by main. Owns which attempt is in hand, how stop requests reach it, and when to leave.
"""

import asyncio
from typing import Protocol

import msgspec
import structlog

from mitosis_protocol.enums import TaskResultMessage
from nodeagent.errors import FatalError, OfferUnreadable, ReportRefused, TransientError
from nodeagent.worker.comm import Commit, HeartbeatReply, TaskOffer, TaskRef, WorkerComm
from nodeagent.worker.control import Stopped, StopReason, TaskControl
from nodeagent.worker.departure import Departure
from nodeagent.worker.retry import Backoff, jittered, persist
from nodeagent.worker.task_run import NEVER_RAN_STATUS

log = structlog.stdlib.get_logger(__name__)

_MOST_EARLY = 64  # stops kept for attempts that we do not hold (yet)
# A missed heartbeat is repeated soon: the coordinator counts from the last one that arrived.
_HEARTBEAT_BACKOFF = Backoff(base_s=0.5, cap_s=15.0)


class Intervals(msgspec.Struct, frozen=True):
    """How often a worker asks, beats, and how long it may finish when told to leave."""

    polling_s: float
    heartbeat_s: float
    grace_s: float


class Runner(Protocol):
    """What the loop needs of task_run."""

    async def run(self, offer: TaskOffer, control: TaskControl) -> None: ...
    async def reject(self, task: TaskRef, commit: Commit) -> None: ...


class Cleaner(Protocol):
    """What the loop needs of the workspace."""

    async def reset(self) -> None: ...


class WorkerLoop:
    """One worker, one task at a time."""

    def __init__(
        self,
        comm: WorkerComm,
        runner: Runner,
        cleaner: Cleaner,
        departure: Departure,
        intervals: Intervals,
    ) -> None:
        self._comm = comm
        self._runner = runner
        self._cleaner = cleaner
        self._departure = departure
        self._intervals = intervals
        self._current: TaskControl | None = None
        self._given_up: set[int] = set()
        self._early: dict[int, StopReason] = {}

    async def run(self) -> None:
        """Until asked to leave. Raises FatalError; no command is running when it returns."""
        beating = asyncio.create_task(self._beat())
        leaving = asyncio.create_task(self._watch_departure())
        working = asyncio.create_task(self._work())
        try:
            await asyncio.wait({beating, working}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                # The heartbeat learned that we were removed: end the task, then the loop.
                self._departure.hurry()
                self._stop_current(StopReason.REMOVED)
                await asyncio.wait({working})
                beating.result()
            working.result()
        finally:
            for task in (beating, leaving, working):
                task.cancel()
            await asyncio.gather(beating, leaving, working, return_exceptions=True)

    def stop(self, attempt_id: int, reason: StopReason) -> None:
        """For news between beats. An attempt that is not in hand may be on its way: the answer to
        a fetch and the order to stop it race each other.
        """
        if self._current is not None and self._current.attempt_id == attempt_id:
            self._stop_current(reason)
            return
        self._early[attempt_id] = reason
        if len(self._early) > _MOST_EARLY:
            del self._early[next(iter(self._early))]

    def set_heartbeat(self, seconds: float) -> None:
        """From the next beat on."""
        self._intervals = msgspec.structs.replace(self._intervals, heartbeat_s=seconds)

    async def _work(self) -> None:
        clock = asyncio.get_running_loop().time
        while not self._departure.is_asked:
            started = clock()
            try:
                offer = await self._departure.unless_asked(persist(self._comm.fetch, what="fetch"))
            except Stopped:
                return
            except OfferUnreadable as error:
                await self._reject(error)
                continue
            if offer is None:
                # From the start of the request: a coordinator that held it open has waited for us.
                pause_s = jittered(self._intervals.polling_s) - (clock() - started)
                await self._departure.sleep(max(0.0, pause_s))
                continue
            if self._departure.is_asked:
                # Asked while the answer was on its way: unregistering gives it back.
                return
            await self._run(offer)

    async def _run(self, offer: TaskOffer) -> None:
        # Not `bound_contextvars`, which looks through everything bound, before and after.
        bound = structlog.contextvars.bind_contextvars(
            task_uuid=str(offer.uuid), attempt_id=offer.attempt_id
        )
        try:
            await self._run_bound(offer)
        finally:
            structlog.contextvars.reset_contextvars(**bound)

    async def _run_bound(self, offer: TaskOffer) -> None:
        if offer.attempt_id in self._given_up:
            # We failed with it before and were handed it again: settle it, do not spin.
            task = TaskRef(attempt_id=offer.attempt_id, uuid=offer.uuid)
            await self._settle(task, Commit(NEVER_RAN_STATUS))
            return
        self._current = TaskControl(offer.attempt_id)
        if offer.attempt_id in self._early:
            self._stop_current(self._early.pop(offer.attempt_id))
        try:
            await self._runner.run(offer, self._current)
        except FatalError:
            raise
        except ReportRefused as error:
            log.warning("task.report_refused", error=str(error))
            self._given_up.add(offer.attempt_id)
        except Exception:
            # Shell edge: a bug met by one task must not end the worker.
            log.exception("task.crashed")
            self._given_up.add(offer.attempt_id)
        finally:
            self._current = None
            await self._cleaner.reset()

    async def _reject(self, error: OfferUnreadable) -> None:
        task = TaskRef(attempt_id=error.attempt_id, uuid=error.uuid)
        log.warning("task.unreadable", attempt_id=error.attempt_id, error=str(error))
        if error.is_resource_trouble:
            await self._settle(task, Commit(0, TaskResultMessage.RESOURCE_FORBIDDEN))
        else:
            await self._settle(task, Commit(NEVER_RAN_STATUS))

    async def _settle(self, task: TaskRef, commit: Commit) -> None:
        try:
            await self._departure.unless_asked(self._runner.reject(task, commit))
        except Stopped:
            return
        except ReportRefused as error:
            # Neither run nor settled: unregistering is the only way left to give it back.
            raise FatalError(f"attempt {task.attempt_id} cannot be settled: {error}") from error

    async def _beat(self) -> None:
        failures = 0
        # The first beat comes somewhere within the interval, so that a fleet does not beat as one.
        delay_s = jittered(self._intervals.heartbeat_s / 2, spread=1.0)
        while True:
            await asyncio.sleep(delay_s)
            try:
                reply = await self._comm.heartbeat(self._held())
            except TransientError as error:
                failures += 1
                delay_s = _HEARTBEAT_BACKOFF.delay_s(failures, error)
                log.warning("heartbeat.failed", failures=failures, error=str(error))
            else:
                failures = 0
                delay_s = jittered(self._intervals.heartbeat_s, spread=0.1)
                self._obey(reply)

    def _obey(self, reply: HeartbeatReply) -> None:
        if self._current is None:
            return
        if self._current.attempt_id in reply.revoked:
            self._stop_current(StopReason.REVOKED)
        elif self._current.attempt_id in reply.cancel:
            self._stop_current(StopReason.CANCELLED)

    async def _watch_departure(self) -> None:
        await self._departure.wait_asked()
        if self._current is not None and self._intervals.grace_s > 0:
            log.info("worker.finishing", grace_s=self._intervals.grace_s)
            await self._departure.sleep_unless_hurried(self._intervals.grace_s)
        self._stop_current(StopReason.SHUTDOWN)

    def _stop_current(self, reason: StopReason) -> None:
        if self._current is not None:
            if self._current.reason is not reason:
                log.info("task.stopping", attempt_id=self._current.attempt_id, reason=reason.value)
            self._current.stop(reason)

    def _held(self) -> tuple[int, ...]:
        return () if self._current is None else (self._current.attempt_id,)
