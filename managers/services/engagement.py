"""The engagement of a manager with a suite, as the manager goes through it.

Called by the socket's handlers with the manager's id from its token; `assignment_id` is the fence:
a message about an engagement that is over changes nothing and the answer says so.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from accounts.actors import SYSTEM
from accounts.services.audit import record
from core.errors import Conflict, NotFound
from core.pg import load_sql
from core.transitions import move
from managers.enums import PreparationTrouble, ReleaseReason
from managers.models import PreparationFailure, SuiteAssignment
from managers.transitions import ASSIGNMENT
from mitosis_protocol.enums import AssignmentState
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from suites.models import TaskSuite
from suites.services.pausing import block_suite

_LOCK: Final = load_sql("managers", "lock_engagements")
_RELEASE: Final = load_sql("managers", "release_engagements")
_READOPT: Final = load_sql("managers", "readopt")


@dataclass(frozen=True, slots=True)
class Failure:
    """How a preparation failed."""

    trouble: PreparationTrouble
    exit_code: int | None = None
    message: str = ""


def find_engagement(manager_id: int) -> SuiteAssignment | None:
    """What the manager is engaged with now, its suite and group at hand."""
    rows = SuiteAssignment.objects.select_related("suite", "suite__group")
    return rows.filter(manager_id=manager_id, released_at__isnull=True).first()


def begin_preparation(*, manager_id: int, assignment_id: int) -> bool:
    """The manager took the suite up. False if it said so before; Conflict if it is over."""
    return _advance(manager_id, assignment_id, AssignmentState.PREPARING)


def finish_preparation(*, manager_id: int, assignment_id: int) -> bool:
    """The host is ready: tasks may be claimed from now on."""
    return _advance(
        manager_id, assignment_id, AssignmentState.EXECUTING, changes={"prepared_at": Now()}
    )


def fail_preparation(
    *, manager_id: int, assignment_id: int, failure: Failure, blocked_after_hosts: int
) -> bool:
    """The host could not be prepared: never again for this suite, until it is resumed.

    Answers whether the suite is blocked now, because so many hosts failed alike. Idempotent.
    """
    text = failure.message[:MAX_ERROR_MESSAGE_CHARS]
    with transaction.atomic():
        row = _mine(manager_id, assignment_id).select_for_update(no_key=True).first()
        if row is None:
            raise NotFound("The engagement does not exist")
        if row.state == AssignmentState.RELEASED:
            return False
        PreparationFailure.objects.bulk_create(
            [
                PreparationFailure(
                    suite_id=row.suite_id,
                    manager_id=manager_id,
                    assignment_id=assignment_id,
                    trouble=failure.trouble,
                    exit_code=failure.exit_code,
                    message=text,
                    failed_at=Now(),
                )
            ],
            ignore_conflicts=True,
        )
        _mine(manager_id, assignment_id).filter(state__lt=AssignmentState.CLEANUP.code).update(
            state=AssignmentState.CLEANUP,
            trouble=failure.trouble,
            release_reason=ReleaseReason.PREPARATION,
            release_asked_at=Now(),
        )
        return _block_if_hopeless(row.suite_id, failure, text, blocked_after_hosts)


def finish_engagement(
    *, manager_id: int, assignment_id: int, reason: ReleaseReason = ReleaseReason.AGENT
) -> bool:
    """Cleaned up and free again; a reason given before stays. False if it was over already."""
    if not _mine(manager_id, assignment_id).exists():
        raise NotFound("The engagement does not exist")
    return bool(_release(reason, ids=[assignment_id]))


def release_all(manager_ids: Collection[int], reason: ReleaseReason) -> list[int]:
    """End every live engagement of these managers at once; answers the engagements."""
    return _release(reason, manager_ids=sorted(manager_ids))


def readopt(*, manager_id: int, suite_uuid: uuid.UUID, lease_s: float) -> int | None:
    """A manager came back after its lease ended and is still prepared for a suite.

    A new engagement, straight to Executing, if the suite lives, the group still has its role and
    the host has no other; None otherwise: then it has to clean up.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _READOPT, {"manager_id": manager_id, "suite_uuid": suite_uuid, "lease_s": lease_s}
        )
        row = cursor.fetchone()
    return None if row is None else int(row[0])


def forgive_preparations(suite: TaskSuite) -> int:
    """Resuming a suite: hosts that failed its preparation may try again."""
    rows = PreparationFailure.objects.filter(suite=suite, forgiven_at__isnull=True)
    return rows.update(forgiven_at=Now())


def _advance(
    manager_id: int,
    assignment_id: int,
    to: AssignmentState,
    *,
    changes: dict[str, Any] | None = None,
) -> bool:
    if not _mine(manager_id, assignment_id).exists():
        raise NotFound("The engagement does not exist")
    # An engagement never changes hands, so the key alone is guard enough from here on.
    rows = SuiteAssignment.objects.filter(pk=assignment_id)
    if move(rows, to, table=ASSIGNMENT, changes=changes, idempotent=True):
        return True
    if rows.filter(state=to).exists():
        return False
    raise Conflict("The engagement is over or has to end")


def _mine(manager_id: int, assignment_id: int) -> "QuerySet[SuiteAssignment]":
    # The manager's id comes from its token: nobody moves an engagement of somebody else.
    return SuiteAssignment.objects.filter(pk=assignment_id, manager_id=manager_id)


def _block_if_hopeless(suite_id: int, failure: Failure, text: str, limit: int) -> bool:
    hosts = PreparationFailure.objects.filter(suite_id=suite_id, forgiven_at__isnull=True).count()
    if hosts < limit:
        return False
    reason = f"The preparation failed on {hosts} hosts ({failure.trouble.value}): {text}"
    block_suite(suite_id, reason=reason)
    return True


def lock_engagements(
    *, ids: list[int] | None = None, manager_ids: list[int] | None = None
) -> list[int]:
    """Lock live engagements in id order until the transaction ends; answers them."""
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, {"ids": ids, "manager_ids": manager_ids})
        return [int(row[0]) for row in cursor.fetchall()]


def _release(
    reason: ReleaseReason,
    *,
    ids: list[int] | None = None,
    manager_ids: list[int] | None = None,
) -> list[int]:
    with transaction.atomic(), connection.cursor() as cursor:
        locked = lock_engagements(ids=ids, manager_ids=manager_ids)
        if not locked:
            return []
        cursor.execute(_RELEASE, {"ids": locked, "reason": reason.code})
        detail = {"engagements": locked[:100], "reason": reason.value}
        record(actor=SYSTEM, action="engagement.release", detail=detail)
    return locked
