"""The states of a suite. Nothing else writes `state` but this module and the sweeps beside it.

Every change is one guarded UPDATE whose legal sources come from mitosis_protocol.transitions. Lock
order everywhere: suite rows in id order, then tasks in id order. Ending the tasks of a cancelled
suite is tasks.services' part, after the suite's row.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.services.audit import record
from core.errors import InvalidInput, NotFound
from core.pg import load_sql
from core.transitions import move
from mitosis_protocol.enums import SuiteState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from mitosis_protocol.transitions import SUITE, source_codes
from suites.models import TaskSuite

_LOCK: Final = load_sql("suites", "lock")
_ACCEPT: Final = load_sql("suites", "accept_submits")


def move_suite(
    suite_id: int,
    to: SuiteState,
    *,
    changes: Mapping[str, Any] | None = None,
    idempotent: bool = False,
) -> bool:
    """Move one suite along its table. Raises NotFound or InvalidTransition.

    With `idempotent`, an arrow that is missing is the answer False.
    """
    rows = TaskSuite.objects.filter(pk=suite_id)
    return move(rows, to, table=SUITE, changes=changes, idempotent=idempotent)


def accept_submits(suite_ids: Collection[int]) -> dict[int, int]:
    """Open each suite for the tasks the caller inserts next, in the same transaction.

    Answers each suite's generation. Locks the rows in id order until that transaction ends. Raises
    InvalidInput for a cancelled suite and NotFound for an absent one, and then changes none.
    """
    wanted = set(suite_ids)
    sources = sorted({SuiteState.OPEN.code, *source_codes(SUITE, SuiteState.OPEN)})
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_LOCK, {"suite_ids": sorted(wanted)})
        cursor.execute(_ACCEPT, {"suite_ids": sorted(wanted), "sources": sources})
        accepted: dict[int, int] = dict(cursor.fetchall())
        refused = wanted - accepted.keys()
        if refused:
            raise _refusal(refused)
    return accepted


def close_suite(*, actor: Actor, suite: TaskSuite) -> bool:
    """Say that no more tasks are expected; the suite completes when the last one ends.

    A suite that is closed or complete already stays as it is (False). Raises InvalidTransition for
    a cancelled one.
    """
    with transaction.atomic():
        moved = move_suite(
            suite.pk, SuiteState.CLOSED, changes={"closed_at": Now()}, idempotent=True
        )
        if not moved:
            _refuse_cancelled(suite.pk, SuiteState.CLOSED)
        record(actor=actor, action="suite.close", target=str(suite.uuid))
    return moved


def reopen_suite(*, actor: Actor, suite: TaskSuite) -> bool:
    """Take tasks again without submitting one; the auto-close counts from now.

    False for one that is open already. Raises InvalidTransition for a cancelled suite.
    """
    changes = {
        "generation": F("generation") + 1,
        "opened_at": Now(),
        "closed_at": None,
        "completed_at": None,
    }
    with transaction.atomic():
        moved = move_suite(suite.pk, SuiteState.OPEN, changes=changes, idempotent=True)
        if not moved:
            _refuse_cancelled(suite.pk, SuiteState.OPEN)
        record(actor=actor, action="suite.reopen", target=str(suite.uuid))
    return moved


def cancel_suite_row(*, actor: Actor, suite: TaskSuite, reason: str) -> None:
    """The decision to cancel: from its commit on no task is handed out and no submit accepted.

    The caller ends the tasks afterwards, so that every lock is taken suite first. Raises
    InvalidTransition for a suite that was cancelled before.
    """
    changes = {"cancelled_at": Now(), "cancel_reason": reason[:MAX_ERROR_MESSAGE_CHARS]}
    with transaction.atomic():
        move_suite(suite.pk, SuiteState.CANCELLED, changes=changes)
        detail = {"reason": reason[:MAX_ERROR_MESSAGE_CHARS]}
        record(actor=actor, action="suite.cancel", target=str(suite.uuid), detail=detail)


def _refuse_cancelled(suite_id: int, to: SuiteState) -> None:
    """An idempotent call found no arrow: harmless, unless the suite is at its end."""
    if TaskSuite.objects.filter(pk=suite_id, state=SuiteState.CANCELLED).exists():
        move_suite(suite_id, to)


def _refusal(suite_ids: Collection[int]) -> InvalidInput | NotFound:
    cancelled = TaskSuite.objects.filter(pk__in=suite_ids).values_list("uuid", flat=True)
    shown = ", ".join(str(uuid) for uuid in cancelled[:10])
    if not shown:
        return NotFound("Suite not found")
    return InvalidInput(
        f"suite_uuid: the suite {shown} is cancelled and takes no more tasks",
        code=ErrorCode.SUITE_CANCELLED,
    )
