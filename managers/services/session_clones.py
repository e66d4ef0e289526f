"""Two agents with one identity: taken out of work until a person has looked.

Called by websocket.presence when sessions of one manager replace each other all the time.
"""

import structlog

from accounts.actors import SYSTEM
from core.errors import DomainError
from managers.services.session_threads import in_thread
from managers.services.wishes import quarantine_manager
from runners.models import Runner

log = structlog.get_logger(__name__)

REASON = "two agents seem to share this manager's identity"


async def quarantine_clones(manager_id: int) -> None:
    """No new tasks for this manager; never raises."""
    log.error("manager.clones_suspected", manager_id=manager_id)
    try:
        await in_thread(_quarantine, manager_id)
    except DomainError as error:
        log.warning("manager.quarantine_failed", manager_id=manager_id, reason=error.message)


def _quarantine(manager_id: int) -> None:
    runner = Runner.objects.get(pk=manager_id)
    quarantine_manager(actor=SYSTEM, runner=runner, reason=REASON)
