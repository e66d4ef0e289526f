"""Which attempts a manager may speak about. Called by the other manager services.

Identity comes from the token (`runner_id`); an attempt of somebody else is absent, whether or not
it exists.
"""

from collections.abc import Collection
from typing import Final
from uuid import UUID

import msgspec

from core.errors import StaleAttempt
from tasks.statements import Statement, array


class HeldAttempt(msgspec.Struct, frozen=True):
    attempt_id: int
    task_uuid: UUID
    attempt: int
    group_id: int


BY_ID: Final = Statement(HeldAttempt, "suite/held_by_id")
BY_UUID: Final = Statement(HeldAttempt, "suite/held_by_uuid")


async def find_held(runner_id: int, attempt_ids: Collection[int]) -> dict[int, HeldAttempt]:
    """By attempt; whatever the runner does not hold is missing."""
    rows = await BY_ID.fetch({"attempt_ids": array(set(attempt_ids)), "runner_id": runner_id})
    return {row.attempt_id: row for row in rows}


async def get_held_task(runner_id: int, task_uuid: UUID) -> HeldAttempt:
    """The attempt behind a message that names only the task; raises StaleAttempt."""
    rows = await BY_UUID.fetch({"task_uuid": str(task_uuid), "runner_id": runner_id})
    if not rows:
        raise StaleAttempt("This manager does not hold the task (any more)")
    return rows[0]
