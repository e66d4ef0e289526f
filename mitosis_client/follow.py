"""Waiting for tasks: reads the event log until all of them have ended.

The log is durable and has a cursor, so nothing is missed between two looks and a coordinator
that restarts costs a pause. Used by `run --wait`, `suites wait` and the executor.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from mitosis_client.client import Client
from mitosis_client.errors import MitosisError, WaitTimedOut
from mitosis_client.models import Event, Suite
from mitosis_client.outage import Outage

MIN_PAUSE_S: Final = 0.04
MAX_PAUSE_S: Final = 0.5
PAUSE_SHARE: Final = 0.2  # of the time nothing was heard: an end is told at most a fifth late
MAX_EARLY: Final = 200_000
ENDED: Final = "ended"
SUCCEEDED: Final = "succeeded"


def pause_for(quiet_s: float) -> float:
    """How long to wait before the next look, after so long without news."""
    return min(MAX_PAUSE_S, max(MIN_PAUSE_S, quiet_s * PAUSE_SHARE))


class Ended(msgspec.Struct, frozen=True):
    """One task that has ended."""

    uuid: str
    outcome: str
    event: Event


class Follower:
    """Which of some tasks have ended, and how. Begin before the submit: `cursor` is the start."""

    def __init__(self, client: Client, cursor: str | None = None) -> None:
        self._client = client
        self.outage = Outage()
        self._cursor = cursor or client.tasks.group_events("newest").cursor
        self._early: dict[str, Ended] = {}
        self._waiting: set[str] = set()
        self.outcomes: Counter[str] = Counter()

    @property
    def left(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> frozenset[str]:
        return frozenset(self._waiting)

    def add(self, uuids: Iterable[str]) -> None:
        self._waiting.update(uuids)

    def poll(self) -> Iterator[Ended]:
        """What has ended since the last look, once each."""
        is_end = False
        while not is_end:
            page = self._client.tasks.group_events(self._cursor)
            self._cursor, is_end = page.cursor, page.is_end
            for event in page.events:
                if event.kind == ENDED and event.task_uuid is not None:
                    found = Ended(event.task_uuid, event.outcome or "", event)
                    self._early[found.uuid] = found
            yield from self._arrived()
            # The page behind the last end would only be another question.
            is_end = is_end or not self._waiting
        while len(self._early) > MAX_EARLY:  # ends of tasks that are not ours
            self._early.pop(next(iter(self._early)))

    def look(self) -> Iterator[Ended]:
        """As poll, but a coordinator that is away for a while has only nothing new to tell."""
        try:
            yield from self.poll()
        except MitosisError as error:
            self.outage.bear(error)
        else:
            self.outage.over()

    def _arrived(self) -> Iterator[Ended]:
        """An end may be seen before the answer of the submit that names the task."""
        for uuid in self._waiting & self._early.keys():
            ended = self._early.pop(uuid)
            self._waiting.discard(uuid)
            self.outcomes[ended.outcome] += 1
            yield ended

    def wait(
        self, each: Callable[[Ended], None], *, tick: Callable[[], None] = lambda: None,
        timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        """Until nothing is left; `each` sees every end, `tick` every look. Raises WaitTimedOut.

        What `each` raises comes through; only the coordinator's own absence is waited out.
        """
        heard = time.monotonic()
        deadline = None if timeout_s is None else heard + timeout_s
        while self._waiting:
            for ended in self.look():
                each(ended)
                heard = time.monotonic()
            tick()
            if not self._waiting:
                return
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimedOut(f"{len(self._waiting)} tasks have not ended in {timeout_s:g} s")
            time.sleep(pause_for(time.monotonic() - heard))


def wait_for_suite(
    client: Client, uuid: str, *, tick: Callable[[Suite], None] = lambda suite: None,
    timeout_s: float | None = None, until_complete: bool = False, outage: Outage | None = None,
) -> Suite:  # fmt: skip
    """Until no task is pending, or until the suite is over. Raises WaitTimedOut."""
    began = time.monotonic()
    deadline = None if timeout_s is None else began + timeout_s
    # The first look is not forgiven: a wrong address or uuid is to be told at once.
    suite, outage = client.suites.show(uuid), outage or Outage()
    while not _is_over(suite, until_complete=until_complete):
        tick(suite)
        if deadline is not None and time.monotonic() > deadline:
            raise WaitTimedOut(f"suite {uuid} has {suite.pending_tasks} tasks left")
        time.sleep(pause_for(time.monotonic() - began))
        try:
            suite = client.suites.show(uuid)
        except MitosisError as error:
            outage.bear(error)
        else:
            outage.over()
    tick(suite)
    return suite


def _is_over(suite: Suite, *, until_complete: bool) -> bool:
    if suite.state in ("Complete", "Cancelled"):
        return True
    return not until_complete and bool(suite.total_tasks) and not suite.pending_tasks
