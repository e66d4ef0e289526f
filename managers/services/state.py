"""The state of a manager as single moves along its table; heartbeats report it in sets."""

from core.errors import InvalidTransition, NotFound
from managers.models import NodeManager
from mitosis_protocol.enums import ManagerState
from mitosis_protocol.transitions import MANAGER, sources


def move_manager(manager_id: int, to: ManagerState, *, idempotent: bool = False) -> bool:
    """Move one manager along its table. Raises NotFound or InvalidTransition.

    With `idempotent`, an arrow that is missing is the answer False.
    """
    rows = NodeManager.objects.filter(pk=manager_id)
    # By hand: core.transitions refuses a table whose primary key is a foreign key.
    if rows.filter(state__in=sources(MANAGER, to)).update(state=to):
        return True
    present = rows.first()
    if present is None:
        raise NotFound("Manager not found")
    if idempotent:
        return False
    raise InvalidTransition(
        f"A manager that is {present.state} cannot become {to}",
        extra={"state": str(present.state), "wanted": str(to)},
    )
