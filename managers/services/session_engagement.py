"""The end of an engagement as a manager reports it over its socket, and its way back into one.

The asynchronous face of managers.services.engagement. A message about an engagement that is over
is answered with False: the manager goes on, and the next heartbeat tells it what counts.
"""

import uuid
from typing import Final

from django.conf import settings

from core.errors import NotFound
from managers.enums import PreparationTrouble
from managers.models import SuiteAssignment
from managers.services.announcements import tell_of_pass
from managers.services.config import read_config
from managers.services.early_pass import idle_managers
from managers.services.engagement import Failure, fail_preparation, finish_engagement, readopt
from managers.services.scheduler import run_pass
from managers.services.session_threads import in_thread

TROUBLES: Final = {trouble.value: trouble for trouble in PreparationTrouble}


async def complete_engagement(
    *, manager_id: int, suite_uuid: uuid.UUID | None, assignment_id: int | None
) -> bool:
    """Cleaned up and free; the scheduler may give the host its next suite at once."""
    is_news, has_passed = await in_thread(_complete, manager_id, suite_uuid, assignment_id)
    if is_news and not has_passed:
        # Somebody else's pass may have taken its picture before; the next one waits for it.
        idle_managers().note(manager_id)
    return is_news


async def fail_engagement(
    *, manager_id: int, suite_uuid: uuid.UUID, assignment_id: int | None, failure: Failure
) -> tuple[bool, bool]:
    """The preparation failed: whether that was news, and whether the suite is blocked now."""
    return await in_thread(_fail, manager_id, suite_uuid, assignment_id, failure)


async def return_to_suite(*, manager_id: int, suite_uuid: uuid.UUID) -> int | None:
    """A reconnected manager that is still prepared; the engagement, or None: clean up."""
    return await in_thread(_readopt, manager_id, suite_uuid)


def _complete(
    manager_id: int, suite_uuid: uuid.UUID | None, assignment_id: int | None
) -> tuple[bool, bool]:
    """Whether that was news, and whether a pass has looked at the host since."""
    found = _find(manager_id, suite_uuid, assignment_id)
    if found is None or not finish_engagement(manager_id=manager_id, assignment_id=found):
        return False, False
    result = run_pass()
    tell_of_pass(result)
    return True, result.is_mine


def _fail(
    manager_id: int, suite_uuid: uuid.UUID, assignment_id: int | None, failure: Failure
) -> tuple[bool, bool]:
    found = _find(manager_id, suite_uuid, assignment_id)
    if found is None:
        return False, False
    try:
        is_blocked = fail_preparation(
            manager_id=manager_id,
            assignment_id=found,
            failure=failure,
            blocked_after_hosts=settings.MITOSIS.blocked_after_hosts,
        )
    except NotFound:
        return False, False
    return True, is_blocked


def _readopt(manager_id: int, suite_uuid: uuid.UUID) -> int | None:
    lease_s = read_config().lease_duration_s
    return readopt(manager_id=manager_id, suite_uuid=suite_uuid, lease_s=lease_s)


def _find(manager_id: int, suite_uuid: uuid.UUID | None, assignment_id: int | None) -> int | None:
    """The live engagement the message speaks of; both names have to fit where both are given."""
    rows = SuiteAssignment.objects.filter(manager_id=manager_id, released_at__isnull=True)
    if suite_uuid is not None:
        rows = rows.filter(suite__uuid=suite_uuid)
    if assignment_id is not None:
        rows = rows.filter(pk=assignment_id)
    return rows.values_list("pk", flat=True).first()
