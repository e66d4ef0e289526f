"""Whoever holds a cancelled task is told at once instead of at its next heartbeat.

Hints only: a manager or direct worker that misses one learns the same from the answer to its next
heartbeat, so nothing here may fail or slow a request. Used by the task routes and the console.
"""

from typing import Final

from core.push import to_manager_on_commit, to_worker_on_commit
from mitosis_protocol.enums import RunnerKind
from mitosis_protocol.to_manager import CancelTask
from runners.models import Runner
from tasks.services.cancel import USER_REASON, Cancelled, stop_orders
from workers.hints import StopAttempt

# Each is one message through Redis; beyond this the heartbeat is the faster way.
MAX_STOP_HINTS: Final = 256


def tell_to_stop(done: Cancelled) -> None:
    """Those that hold what was just cancelled should stop it now."""
    orders = stop_orders(done.stopping_ids[:MAX_STOP_HINTS])
    holders = Runner.objects.filter(
        pk__in={order.runner_id for order in orders},
        kind__in=[RunnerKind.MANAGER, RunnerKind.DIRECT],
    )
    known = {runner.pk: runner for runner in holders.only("uuid", "kind")}
    for order in orders:
        runner = known.get(order.runner_id)
        if runner is None:
            continue
        if runner.kind is RunnerKind.DIRECT:
            to_worker_on_commit(runner.uuid, StopAttempt(attempt_id=order.attempt_id))
        else:
            message = CancelTask(task_uuid=order.task_uuid, reason=USER_REASON)
            to_manager_on_commit(runner.uuid, message)
