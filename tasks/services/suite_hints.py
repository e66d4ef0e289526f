"""What managers engaged with a suite are told at once instead of at their next question.

Hints only: the answer to the next heartbeat or fetch says the same, so a lost one costs seconds.
Work for a suite that nobody serves makes the scheduler look at once, and so does the close of one
that has nothing left to do: its hosts are free.
Used by the suite routes and the console.
"""

import msgspec

from core.push import to_managers_on_commit
from managers.models import SuiteAssignment
from managers.services.early_end import end_emptied_on_commit
from managers.services.early_pass import serve_suites_on_commit
from mitosis_protocol.to_manager import CancelSuite, Pause, Resume, TasksReady
from suites.models import TaskSuite


def tell_cancelled(suite: TaskSuite, *, reason: str, stop_running: bool) -> None:
    message = CancelSuite(suite_uuid=suite.uuid, reason=reason, cancel_running_tasks=stop_running)
    _tell(suite, message)


def tell_closed(suite: TaskSuite) -> None:
    end_emptied_on_commit([suite.pk])


def tell_paused(suite: TaskSuite) -> None:
    _tell(suite, Pause(suite_uuid=suite.uuid))


def tell_resumed(suite: TaskSuite) -> None:
    _tell_or_serve(suite, Resume(suite_uuid=suite.uuid))


def tell_of_work(suite: TaskSuite) -> None:
    _tell_or_serve(suite, TasksReady(suite_uuid=suite.uuid))


def _tell_or_serve(suite: TaskSuite, message: msgspec.Struct) -> None:
    """Those that work for the suite; where there is nobody, an idle one may begin at once."""
    if not _tell(suite, message):
        serve_suites_on_commit([suite.pk])


def _tell(suite: TaskSuite, message: msgspec.Struct) -> int:
    """How many were told."""
    engaged = SuiteAssignment.objects.filter(suite_id=suite.pk, released_at__isnull=True)
    uuids = list(engaged.values_list("manager__runner__uuid", flat=True))
    to_managers_on_commit(uuids, message)
    return len(uuids)
