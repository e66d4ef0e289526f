"""Direct workers are told of new tasks of their group at once instead of at their next look.

Hints only: a worker that misses one asks within seconds. Most groups have no direct worker; that
is remembered for a moment, so that a submit costs them nothing. Used by the submit routes.
"""

import time
from collections.abc import Iterable
from typing import Final

from core.push import to_tenants_on_commit
from workers.hints import WorkWaits
from workers.models import Worker

KNOWN_S: Final = 60.0  # that a group has direct workers
UNKNOWN_S: Final = 1.0  # that it has none: the first one must not wait long
MAX_GROUPS: Final = 10_000

_known: Final[dict[int, tuple[float, bool]]] = {}


def tell_of_tasks(group_ids: Iterable[int]) -> None:
    """Those that serve one of these groups should look."""
    served = [group_id for group_id in set(group_ids) if _has_direct_workers(group_id)]
    if served:
        to_tenants_on_commit(served, WorkWaits())


def _has_direct_workers(group_id: int) -> bool:
    now = time.monotonic()
    until, found = _known.get(group_id, (0.0, False))
    if until > now:
        return found
    if len(_known) >= MAX_GROUPS:
        _known.clear()
    found = Worker.objects.filter(tenant_id=group_id, runner__revoked_at__isnull=True).exists()
    _known[group_id] = (now + (KNOWN_S if found else UNKNOWN_S), found)
    return found
