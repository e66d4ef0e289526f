"""What the event stream of a suite looks at between two events, on the async pool."""

from dataclasses import asdict, dataclass
from typing import Final
from uuid import UUID

from core.pg import get_pool, load_sql
from mitosis_protocol.enums import SuiteState

_WATCH: Final = load_sql("tasks", "suite/watch")


@dataclass(frozen=True, slots=True)
class WatchedSuite:
    """Where a suite stands; counts as in its page."""

    id: int
    state: SuiteState
    is_paused: bool
    blocked_reason: str | None
    total_tasks: int
    pending_tasks: int
    succeeded_tasks: int
    failed_tasks: int
    cancelled_tasks: int

    def shown(self) -> dict[str, object]:
        """What readers get: all but the internal id."""
        members = {**asdict(self), "state": self.state.value}
        del members["id"]
        return members


async def find_watched_suite(user_id: int, suite_uuid: UUID) -> WatchedSuite | None:
    """The suite, if the user is in its group."""
    rows = await get_pool().fetch(_WATCH, {"uuid": suite_uuid, "user_id": user_id})
    if not rows:
        return None
    suite_id, state, *rest = rows[0]
    return WatchedSuite(suite_id, SuiteState.from_code(state), *rest)
