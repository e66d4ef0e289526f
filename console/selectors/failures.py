"""Failures, newest first, and who is to blame: which cause, host and suite most of them share.

One bounded read gives both the list and the counts, so the counts are about what was looked at and
say so when there is more.
"""

import os
import signal
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from console.selectors.names import Names, names_of
from console.selectors.statements import fetch
from console.viewer import Viewer
from core.clock import now
from mitosis_protocol.enums import Outcome, TaskResultMessage

MAX_LOOKED_AT: Final = 2000
_LATEST: Final = datetime(9999, 1, 1, tzinfo=UTC)
_MAX_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """Behind which failure to go on."""

    at: datetime = _LATEST
    id: int = _MAX_ID


@dataclass(frozen=True, slots=True)
class Failure:
    """One task that ended badly."""

    id: int
    uuid: UUID
    ended_at: datetime
    outcome_code: int
    exit_status: int | None
    msg_code: int | None
    reason: str | None
    runner_id: int | None
    suite_id: int | None
    group_id: int

    @property
    def outcome(self) -> Outcome:
        return Outcome.from_code(self.outcome_code)

    @property
    def cause(self) -> str:
        return cause_of(self.outcome, self.exit_status, self.msg_code, self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFilter:
    """`window` back from now; the rest narrows."""

    window: timedelta
    suite_id: int | None = None
    group_id: int | None = None
    runner_id: int | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found, and whether the look ended before the failures did."""

    failures: list[Failure]
    names: Names
    is_cut: bool

    def by(self, key: str) -> list[tuple[Any, int]]:
        """Most frequent first."""
        return Counter[Hashable](getattr(one, key) for one in self.failures).most_common(10)


def read_failures(
    viewer: Viewer,
    wanted: FailureFilter,
    *,
    before: Cursor = Cursor(),
    max_rows: int = MAX_LOOKED_AT,
) -> Looked:
    """The newest failures that the viewer may see."""
    group_ids = _groups(viewer, wanted.group_id)
    parameters = {
        "since": now() - wanted.window,
        "before_at": before.at,
        "before_id": before.id,
        "max_rows": max_rows,
        "group_ids": group_ids,
        "suite_id": wanted.suite_id,
    }
    source = "all" if group_ids is None else "groups"
    if wanted.suite_id is not None:
        source = "suite"
    looked = fetch(f"failures/{source}", Failure, parameters)
    found = [one for one in looked if _matches(one, wanted, group_ids)]
    names = names_of(
        runners=_some(one.runner_id for one in found),
        suites=_some(one.suite_id for one in found),
        groups={one.group_id for one in found},
    )
    return Looked(found, names, is_cut=len(looked) == max_rows)


def cause_of(
    outcome: Outcome, exit_status: int | None, msg_code: int | None, reason: str | None
) -> str:
    """What people would call the cause; equal for failures of one kind."""
    if outcome is not Outcome.FAILED:
        return _NAMED[outcome]
    if msg_code is not None:
        return TaskResultMessage.from_code(msg_code).value
    if exit_status:
        return _exit_text(exit_status)
    return "no result" if not reason else reason.partition(":")[0][:80]


_NAMED: Final = {
    Outcome.TIMEOUT: "timed out",
    Outcome.OOM: "out of memory",
    Outcome.UPSTREAM_FAILED: "an upstream task failed",
    Outcome.CANCELLED: "cancelled",
    Outcome.SUCCEEDED: "succeeded",
}


def _exit_text(status: int) -> str:
    """Of a raw wait status; existing workers may send a plain code."""
    code = (
        os.waitstatus_to_exitcode(status)
        if os.WIFEXITED(status) or os.WIFSIGNALED(status)
        else status
    )
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _groups(viewer: Viewer, group_id: int | None) -> Sequence[int] | None:
    """Where to look: a group the viewer does not belong to is no place at all."""
    visible = viewer.group_ids()
    if group_id is None:
        return visible
    return [group_id] if visible is None or group_id in visible else []


def _matches(one: Failure, wanted: FailureFilter, group_ids: Sequence[int] | None) -> bool:
    return (
        (group_ids is None or one.group_id in group_ids)
        and wanted.runner_id in (None, one.runner_id)
        and wanted.cause in ("", one.cause)
    )


def _some(ids: Iterable[int | None]) -> set[int]:
    return {pk for pk in ids if pk is not None}
