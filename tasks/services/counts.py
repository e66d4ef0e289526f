"""Counters of suites: the sum of their deltas, and the sweep that folds those.

Exact at every moment: each statement that moves tasks in or out of the active table writes its
delta in the same transaction, one row per suite.
"""

from collections.abc import Collection

from core.faults import fault
from core.locks import try_advisory_xact_lock
from tasks import store
from tasks.rows import SuiteCounts
from tasks.statements import array


def suite_counts(suite_ids: Collection[int]) -> dict[int, SuiteCounts]:
    """Counters by suite; one that never had a task has zeros."""
    rows = store.SUITE_COUNTS.fetch_sync({"suite_ids": array(suite_ids)})
    found = {row.suite_id: row for row in rows}
    return {suite_id: found.get(suite_id, SuiteCounts(suite_id)) for suite_id in suite_ids}


def fold_counts(*, max_rows: int) -> int:
    """Make many deltas one per suite; answers how many rows were folded."""
    with try_advisory_xact_lock("sweep.counts") as is_ours:
        if not is_ours:
            return 0
        [folded] = store.FOLD_COUNTS.fetch_sync({"max_rows": max_rows})
        fault("count.mid_fold")
        return folded.count
