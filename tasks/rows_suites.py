"""Rows of the statements in tasks/sql/suite, column by column in order."""

from uuid import UUID

import msgspec


class RerunCandidate(msgspec.Struct, frozen=True):
    """An ended task that may run again, and what its place in the queue is made of."""

    id: int
    uuid: UUID
    tags: list[str]
    pinned_runner_id: int | None


class RerunEdge(msgspec.Struct, frozen=True):
    """What a task waited for, by the newest run of it."""

    task_id: int
    upstream_id: int
    upstream_uuid: UUID
    condition: int


class RerunRef(msgspec.Struct, frozen=True):
    """A new task and the uuid of the one it reruns; `number` is `task_id` on the wire."""

    id: int
    uuid: UUID
    number: int
    rerun_of: UUID
