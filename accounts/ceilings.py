"""How urgent the tasks and suites of a group may be: the rule behind `groups.priority_ceiling`.

Asked by everything that takes a priority from outside: submits, arrays, changes, downstream tasks
and suites. Lowering a ceiling leaves waiting tasks as they are; a rerun comes back at most at it.
"""

from accounts.models import Group
from core.errors import InvalidInput


def check_priority(group: Group, priority: int | None, *, field: str = "priority") -> None:
    """Raises InvalidInput that names `field`; None stands for a priority that was not given."""
    ceiling = group.priority_ceiling
    if ceiling is None or priority is None or priority <= ceiling:
        return
    raise InvalidInput(f"{field}: {priority} is above {ceiling}, the ceiling of {group.name}")
