"""Take tasks back: from runners whose lease ran out or that were removed, and past all deadlines.

Each sweep is one idempotent set-based statement under an advisory lock, chosen by fact; a crash
half-way costs nothing. Called by tasks.periodic, by the coordinator when beat is silent, and by
whoever removes a runner.
"""

from collections.abc import Collection
from typing import Final

import msgspec
import structlog

from core.faults import fault
from core.locks import try_advisory_xact_lock
from tasks import store
from tasks.rows import CountRow, SettleRow
from tasks.statements import array

log = structlog.get_logger(__name__)

# Runners of one statement: a dead rack is a few statements, and each one is short.
MAX_RUNNERS: Final = 20


class Swept(msgspec.Struct, frozen=True):
    """What a sweep did; `is_paused`: too many leases ended at once, so the fault is ours."""

    ended: int = 0
    requeued: int = 0
    suite_ids: frozenset[int] = frozenset()
    is_paused: bool = False

    @property
    def count(self) -> int:
        return self.ended + self.requeued


def reap_expired(
    *, grace_s: float, patience_s: float, mass_expiry_ratio: float, max_tasks: int
) -> Swept:
    """Requeue what runners with an ended lease hold, charged if it was started.

    `patience_s`: how long a large part of the fleet may be away before it counts as gone.
    The caller has been up for one full lease. Somebody else sweeping: nothing is done.
    """
    with try_advisory_xact_lock("sweep.reap") as is_ours:
        if not is_ours:
            return Swept()
        [expired, alive] = store.LEASE_CENSUS.fetch_sync(
            {"grace_s": grace_s, "patience_s": patience_s}
        )
        if _is_mass_expiry(expired, alive, mass_expiry_ratio):
            log.error("reap.paused", expired=expired.count, alive=alive.count)
            return Swept(is_paused=True)
        fault("reap.after_select")
        return _reap(None, grace_s=grace_s, max_tasks=max_tasks, charge=True)


def reclaim_from_runners(
    runner_ids: Collection[int], *, charge: bool, max_tasks: int, reason: str
) -> Swept:
    """Take everything back from runners that were removed; their late reports are refused.

    `charge` says whether commands that were started count against the tasks' budgets.
    """
    swept = Swept()
    while True:
        batch = _reap(
            sorted(runner_ids), grace_s=0, max_tasks=max_tasks, charge=charge, reason=reason
        )
        swept = _sum(swept, batch)
        fault("reap.mid_batch")
        if batch.count < max_tasks:
            return swept


def end_overdue(
    *, cancel_silence_s: float, grace_s: float, exclusive_grace_s: float, max_tasks: int
) -> Swept:
    """End held tasks that are far over their timeout or silent after a cancel; fence them.

    `exclusive_grace_s` is for workers of the existing wire, `grace_s` for everybody else.
    """
    with try_advisory_xact_lock("sweep.overdue") as is_ours:
        if not is_ours:
            return Swept()
        rows = store.END_OVERDUE.fetch_sync(
            {
                "cancel_silence_s": cancel_silence_s,
                "grace_s": grace_s,
                "exclusive_grace_s": exclusive_grace_s,
                "max_tasks": max_tasks,
            }
        )
        return _swept(rows)


def _reap(
    runner_ids: Collection[int] | None,
    *,
    grace_s: float,
    max_tasks: int,
    charge: bool,
    reason: str = "the lease of its runner ended",
) -> Swept:
    rows = store.REAP.fetch_sync(
        {
            "runner_ids": None if runner_ids is None else array(runner_ids),
            "grace_s": grace_s,
            "max_runners": MAX_RUNNERS,
            "max_tasks": max_tasks,
            "charge": charge,
            "reason": reason,
            # A removed runner has no right to report; one that was only silent may come back.
            "adoptable": runner_ids is None,
        }
    )
    fault("reap.after_epoch_bump")
    return _swept(rows)


def _is_mass_expiry(expired: CountRow, alive: CountRow, ratio: float) -> bool:
    # One or two dead hosts are everyday life in a small fleet, whatever the ratio says.
    return expired.count > 2 and expired.count > ratio * (expired.count + alive.count)


def _swept(rows: Collection[SettleRow]) -> Swept:
    done = [row for row in rows if row.answer in {"end", "requeue"}]
    return Swept(
        ended=sum(row.answer == "end" for row in done),
        requeued=sum(row.answer == "requeue" for row in done),
        suite_ids=frozenset(row.suite_id for row in done if row.suite_id is not None),
    )


def _sum(one: Swept, other: Swept) -> Swept:
    return Swept(
        one.ended + other.ended,
        one.requeued + other.requeued,
        one.suite_ids | other.suite_ids,
    )
