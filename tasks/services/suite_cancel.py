"""Cancel a suite: its row first, then its tasks. Called by the suite API and the console.

What holds tasks is told to stop in the transaction of the decision, waiting tasks end right after
it in batches. A crash in between, a task that was being claimed at that moment, one that crashes
and comes back, one that a running task adds: `end_leftovers` finds them.
"""

from typing import Final

from django.db import transaction

from accounts.actors import Actor
from core.faults import fault
from suites.models import TaskSuite
from suites.services.lifecycle import cancel_suite_row
from tasks import store
from tasks.models import ActiveTask
from tasks.services.cancel import Cancelled, cancel_suite_tasks, cancel_tasks

# Leaves the canceller time to finish and to count what it ended.
LEFTOVER_AGE_S: Final = 30.0
LEFTOVER_REASON: Final = "the suite was cancelled"


def cancel_suite(
    *, actor: Actor, suite: TaskSuite, reason: str, stop_running: bool, batch: int
) -> Cancelled:
    """Raises InvalidTransition for a suite that was cancelled before.

    Without `stop_running` what runs goes on to its end; nothing is handed out any more.
    """
    told = Cancelled()
    with transaction.atomic():
        cancel_suite_row(actor=actor, suite=suite, reason=reason)
        if stop_running:
            held = ActiveTask.objects.filter(suite_id=suite.pk, runner_id__isnull=False)
            ids = list(held.order_by("id").values_list("id", flat=True))
            told = cancel_tasks(ids, stop_running=True, batch=batch, reason=reason)
    fault("suite.cancel_after_decide")
    rest = cancel_suite_tasks(suite.pk, stop_running=stop_running, batch=batch, reason=reason)
    return _both(told, rest)


def end_leftovers(*, batch: int, age_s: float = LEFTOVER_AGE_S) -> int:
    """Cancel what still waits in suites cancelled a while ago, or was claimed after the decision.

    Idempotent; answers how many tasks were decided.
    """
    rows = store.SUITE_LEFTOVERS.fetch_sync({"age_s": age_s, "batch": batch})
    ids = [row.id for row in rows]
    return cancel_tasks(ids, stop_running=True, batch=batch, reason=LEFTOVER_REASON).count


def _both(told: Cancelled, rest: Cancelled) -> Cancelled:
    """Each task once, by the later word about it."""
    ended = {*told.ended_ids, *rest.ended_ids}
    # Told first and gone by the second look: its runner has reported it, as cancelled.
    stopping = {*told.stopping_ids, *rest.stopping_ids} - ended
    return Cancelled(
        ended_ids=sorted(ended),
        stopping_ids=sorted(stopping),
        held_ids=rest.held_ids,
        busy_ids=rest.busy_ids,
    )
