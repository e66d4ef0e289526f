"""Reads for event streams, on the async pool: a stream holds no connection while it waits.

Called by the asynchronous views of tasks. Event rows carry internal ids; readers get uuids and
names, looked up here in sets.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, LiteralString
from uuid import UUID

import msgspec

from core.pg import get_pool

# A task is in exactly one of the two tables at any moment a statement sees.
_WATCHED: Final[LiteralString] = """
SELECT t.id, t.is_over, t.middleware::text
FROM (
    SELECT id, group_id, false AS is_over, middleware FROM active_tasks WHERE uuid = %(uuid)s
    UNION ALL
    SELECT id, group_id, true, middleware FROM archived_tasks WHERE uuid = %(uuid)s
) t
JOIN memberships m ON m.group_id = t.group_id
WHERE m.user_id = %(user_id)s
"""
_GROUPS: Final[LiteralString] = """
SELECT g.id, g.name
FROM memberships m
JOIN groups g ON g.id = m.group_id
WHERE m.user_id = %(user_id)s
"""
_RUNNERS: Final[LiteralString] = "SELECT id, uuid FROM runners WHERE id = ANY (%(ids)s)"
_SUITES: Final[LiteralString] = "SELECT id, uuid FROM task_suites WHERE id = ANY (%(ids)s)"
_TASKS: Final[LiteralString] = """
SELECT id, uuid FROM active_tasks WHERE id = ANY (%(ids)s)
UNION ALL
SELECT id, uuid FROM archived_tasks WHERE id = ANY (%(ids)s)
"""


@dataclass(frozen=True, slots=True)
class Watched:
    """A task somebody may watch; `is_over` when it has ended, `middleware` as it was submitted."""

    task_id: int
    is_over: bool
    middleware: dict[str, object] | None


async def find_watched(user_id: int, task_uuid: UUID) -> Watched | None:
    """The task, if the user is in its group."""
    rows = await get_pool().fetch(_WATCHED, {"uuid": task_uuid, "user_id": user_id})
    if not rows:
        return None
    task_id, is_over, middleware = rows[0]
    return Watched(task_id, is_over, middleware and msgspec.json.decode(middleware))


async def groups_of_user(user_id: int) -> dict[int, str]:
    """Names of the user's groups by id."""
    return dict(await get_pool().fetch(_GROUPS, {"user_id": user_id}))


async def uuids_of_runners(ids: Collection[int]) -> dict[int, UUID]:
    return await _uuids(_RUNNERS, ids)


async def uuids_of_tasks(ids: Collection[int]) -> dict[int, UUID]:
    return await _uuids(_TASKS, ids)


async def uuids_of_suites(ids: Collection[int]) -> dict[int, UUID]:
    return await _uuids(_SUITES, ids)


async def _uuids(statement: LiteralString, ids: Collection[int]) -> dict[int, UUID]:
    if not ids:
        return {}
    return dict(await get_pool().fetch(statement, {"ids": list(ids)}))
