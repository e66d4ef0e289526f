"""How a worker's identity ends: asked to leave, removed at once, or silent for too long.

Called by workers.api, workers.admin and workers.periodic. What a worker held is taken back by
tasks.services.reclaim, above this package, so callers hand that in as `take_back`. The statements
look at the task table by name, because "holds nothing" is part of their condition.
"""

import time
from collections.abc import Callable, Collection
from typing import Any, Final
from uuid import UUID

import structlog
from django.db import connection, transaction
from django.db.models.functions import Now

from accounts.actors import SYSTEM, Actor
from accounts.services.audit import arecord, record
from core.pg import get_pool, load_sql
from core.push import to_worker_on_commit
from mitosis_protocol.enums import DesiredState, RunnerKind, ShutdownOp
from runners.models import Runner, RunnerLease
from runners.services.registration import revoke_runner
from runners.standing import forget_standing
from workers.hints import WorkWaits

log = structlog.get_logger(__name__)

_END_LEAVING: Final = load_sql("workers", "end_leaving")
_RETIRE_SILENT: Final = load_sql("workers", "retire_silent")
_REMOVED_HOLDERS: Final = load_sql("workers", "removed_holders")
LEFT: Final = "worker.left"
RETIRED: Final = "worker.retire"
# Of one statement: a retired crowd is a few short statements.
_MAX_RETIRED: Final = 1000
# Taking back skips rows that a beat or a report holds for a moment.
_TAKE_BACK_TRIES: Final = 20
_TAKE_BACK_PAUSE_S: Final = 0.02

# Returns everything a removed worker holds to the queue.
TakeBack = Callable[[int], object]


def shut_down(*, actor: Actor, runner: Runner, op: ShutdownOp, take_back: TakeBack) -> None:
    """Graceful: it finishes what it holds and is gone with the commit. Force: gone now."""
    if op is ShutdownOp.FORCE:
        remove_worker(actor=actor, runner=runner, take_back=take_back)
    else:
        ask_to_leave(actor=actor, runner=runner)


def ask_to_leave(*, actor: Actor, runner: Runner) -> bool:
    """No new task from now on; ends the worker at once if it holds none (then True)."""
    with transaction.atomic():
        # Waits for a claim in flight, which holds the row; the next statement sees its task.
        Runner.objects.filter(pk=runner.pk, revoked_at__isnull=True).update(
            desired_state=DesiredState.SHUTDOWN, updated_at=Now()
        )
        record(actor=actor, action="worker.shutdown", target=str(runner.uuid))
        ended = end_leaving([runner.pk])
        if runner.kind == RunnerKind.DIRECT:
            to_worker_on_commit(runner.uuid, WorkWaits())
    return bool(ended)


def remove_worker(*, actor: Actor, runner: Runner, take_back: TakeBack) -> None:
    """End its identity now, then return its task. Dying in between, the sweep returns it."""
    with transaction.atomic():
        # The lease first, as a beat locks them. Over at once: the reaper is the second net.
        RunnerLease.objects.filter(runner_id=runner.pk).update(expires_at=Now())
        revoke_runner(actor=actor, runner=runner)
    for _ in range(_TAKE_BACK_TRIES):
        take_back(runner.pk)
        if not _holders([runner.pk]):
            return
        time.sleep(_TAKE_BACK_PAUSE_S)
    log.warning("worker.task_not_returned", worker_uuid=str(runner.uuid))


def list_removed_holders() -> list[int]:
    """Removed workers that still hold a task: whoever removed them died before taking it back."""
    return _holders(None)


def end_leaving(runner_ids: Collection[int] | None = None) -> list[UUID]:
    """End those that were asked to leave and hold nothing; None looks at all workers."""
    ids = None if runner_ids is None else list(runner_ids)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_END_LEAVING, {"runner_ids": ids})
        return _recorded(LEFT, _forget(cursor.fetchall()))


async def end_leaving_async(runner_id: int) -> bool:
    """The same for one worker after its commit, without a thread."""
    rows = await get_pool().fetch(_END_LEAVING, {"runner_ids": [runner_id]})
    for uuid in _forget(rows):
        await arecord(actor=SYSTEM, action=LEFT, target=str(uuid))
    return bool(rows)


def retire_silent(*, inactive_s: float) -> list[UUID]:
    """End workers that were stale for `inactive_s` and are not waited for."""
    parameters = {"inactive_s": inactive_s, "max_workers": _MAX_RETIRED}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_RETIRE_SILENT, parameters)
        return _recorded(RETIRED, _forget(cursor.fetchall()))


def _holders(runner_ids: Collection[int] | None) -> list[int]:
    with connection.cursor() as cursor:
        ids = None if runner_ids is None else list(runner_ids)
        cursor.execute(_REMOVED_HOLDERS, {"runner_ids": ids})
        return [row[0] for row in cursor.fetchall()]


def _forget(rows: Collection[tuple[Any, ...]]) -> list[UUID]:
    """Drop what this process remembers of workers that ended; other processes ask within 5 s."""
    gone: list[UUID] = []
    for _, uuid, kind in rows:
        forget_standing(Runner(uuid=uuid, kind=RunnerKind.from_code(kind)))
        log.info("worker.ended", worker_uuid=str(uuid))
        gone.append(uuid)
    return gone


def _recorded(action: str, uuids: list[UUID]) -> list[UUID]:
    for uuid in uuids:
        record(actor=SYSTEM, action=action, target=str(uuid))
    return uuids
