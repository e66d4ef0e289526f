"""Cancel tasks: waiting ones end at once, held ones are told to stop.

The statement's commit is the decision; telling the runner comes after it and may get lost, its
next heartbeat says it again. Called by the API (one, list, filter) and by suite cancellation.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final
from uuid import UUID

import msgspec
from django.db.models import QuerySet

from core.faults import fault
from tasks import store
from tasks.models import ActiveTask
from tasks.rows import SettleRow
from tasks.services.patience import answer_all
from tasks.statements import array

USER_REASON: Final = "cancelled by a user"


class Cancelled(msgspec.Struct, frozen=True):
    """What became of each task: ended, told to stop, left alone because held, gone, or undecided.

    `busy_ids` were locked for two seconds; try them again.
    """

    ended_ids: list[int] = []
    stopping_ids: list[int] = []
    held_ids: list[int] = []
    gone_ids: list[int] = []
    busy_ids: list[int] = []

    @property
    def count(self) -> int:
        """How many will end as cancelled."""
        return len(self.ended_ids) + len(self.stopping_ids)


class StopOrder(msgspec.Struct, frozen=True):
    """What to push to a runner after the commit: stop this attempt."""

    runner_id: int
    attempt_id: int
    task_uuid: UUID


def cancel_tasks(
    task_ids: Collection[int],
    *,
    stop_running: bool,
    batch: int,
    reason: str = USER_REASON,
) -> Cancelled:
    """Cancel tasks by internal id, `batch` per statement, in id order.

    `stop_running` False is what existing clients know: a held task is left alone.
    """
    result = Cancelled()
    for ids in _batches(sorted(set(task_ids)), batch):
        _cancel(ids, result, stop_running=stop_running, reason=reason)
        fault("cancel.after_decide_before_push")
    return result


def cancel_matching(
    tasks: QuerySet[ActiveTask],
    *,
    stop_running: bool,
    batch: int,
    reason: str = USER_REASON,
) -> Cancelled:
    """Cancel everything a filter finds, also what is submitted to it while we work.

    The filter must be on active tasks; it is read in id order, `batch` rows at a time.
    """
    result = Cancelled()
    last_id = 0
    while True:
        page = tasks.filter(id__gt=last_id).order_by("id").values_list("id", flat=True)[:batch]
        ids = list(page)
        if not ids:
            return result
        _cancel(ids, result, stop_running=stop_running, reason=reason)
        fault("cancel.after_decide_before_push")
        last_id = ids[-1]


def cancel_suite_tasks(
    suite_id: int, *, stop_running: bool, batch: int, reason: str = USER_REASON
) -> Cancelled:
    """All tasks of a suite. The caller has closed the suite's intake first."""
    tasks = ActiveTask.objects.filter(suite_id=suite_id)
    return cancel_matching(tasks, stop_running=stop_running, batch=batch, reason=reason)


def stop_orders(task_ids: Collection[int]) -> list[StopOrder]:
    """Who has to be told about tasks in `stopping_ids`; those that ended meanwhile are left out."""
    rows = ActiveTask.objects.filter(
        id__in=task_ids, runner_id__isnull=False, cancel_requested_at__isnull=False
    ).values_list("runner_id", "attempt_id", "uuid")
    return [
        StopOrder(runner_id, attempt_id, uuid)
        for runner_id, attempt_id, uuid in rows
        if runner_id is not None and attempt_id is not None
    ]


def _cancel(ids: Sequence[int], result: Cancelled, *, stop_running: bool, reason: str) -> None:
    def ask(asked: Sequence[int]) -> list[SettleRow]:
        return store.CANCEL.fetch_sync(
            {"task_ids": array(asked), "held": stop_running, "reason": reason}
        )

    piles = {
        "end": result.ended_ids,
        "cancelling": result.stopping_ids,
        "held": result.held_ids,
        "gone": result.gone_ids,
        "busy": result.busy_ids,
    }
    rows = answer_all(ids, ask, is_busy=lambda row: row.answer == "busy")
    for task_id, row in zip(ids, rows, strict=True):
        piles[row.answer].append(task_id)


def _batches(ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), size):
        yield ids[start : start + size]
