"""A task as it is handed to tasks.services.submit, and the row it becomes.

Built by the API, by array templates and by runners that submit downstream tasks; everybody has
validated the spec and the names already (mitosis_protocol), this adds the limits of a row.
"""

import hashlib
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec import Meta

from core.errors import InvalidInput
from core.fields import normalised_tags
from mitosis_protocol.enums import DependencyCondition, TaskPhase
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import (
    MAX_ATTEMPTS_DEFAULT,
    MAX_DEPENDENCIES,
    MAX_FAILURES_DEFAULT,
    MAX_LABELS,
    MAX_SPEC_BYTES,
)
from mitosis_protocol.node_calls import node_tag
from mitosis_protocol.specs import TaskSpec

_json: Final = msgspec.json.Encoder()


class Dependency(msgspec.Struct, frozen=True):
    """`upstream` is the uuid of a task of the same group and suite, or a row of this submission."""

    upstream: UUID | int
    condition: DependencyCondition = DependencyCondition.OK


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`retry_on` = {exit_codes, signals, oom, timeout}; without it only crashes are retried."""

    max_failures: Annotated[int, Meta(ge=1)] = MAX_FAILURES_DEFAULT
    max_attempts: Annotated[int, Meta(ge=1)] = MAX_ATTEMPTS_DEFAULT
    backoff_s: float | None = None
    backoff_max_s: float | None = None
    retry_on: Mapping[str, object] | None = None


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """`limits` = {memory, cpus, pids, on_oom: {factor, max}}, bytes and counts."""

    spec: TaskSpec
    timeout_s: int
    tags: Collection[str] = ()
    labels: Collection[str] = ()
    priority: int = 0
    depends_on: tuple[Dependency, ...] = ()
    retry: RetryPolicy = RetryPolicy()
    limits: Mapping[str, object] | None = None
    not_before: datetime | None = None
    concurrency_key: str | None = None
    affinity: Mapping[str, object] | None = None
    resource_refs: list[object] | None = None
    middleware: Mapping[str, object] | None = None
    pinned_runner_id: int | None = None  # the worker that has the resource_refs


class Links(msgspec.Struct, frozen=True):
    """Where a new task stands in the graph; id None lets the database draw one."""

    id: int | None = None
    waiting_on: int = 0
    dependents: int = 0

    @property
    def state(self) -> TaskPhase:
        return TaskPhase.PENDING if self.waiting_on else TaskPhase.READY


def lane_of(tags: Collection[str], pinned_runner_id: int | None = None) -> int:
    """Which tasks the same runners can take: equal tags and pin. 0 for no demand at all.

    A claim tests one task per lane. Two demands that hash alike would only hide each other inside
    their own queue, and 64 bits make that a curiosity.
    """
    if not tags and pinned_runner_id is None:
        return 0
    demand = _json.encode([sorted(set(tags)), pinned_runner_id])
    return int.from_bytes(hashlib.blake2b(demand, digest_size=8).digest(), "big", signed=True)


def encode_spec(spec: TaskSpec) -> str:
    """The spec as it is stored; raises InvalidInput for one that is too large."""
    return checked_spec(_json.encode(spec).decode())


def checked_spec(text: str) -> str:
    size = len(text.encode())
    if size > MAX_SPEC_BYTES:
        raise InvalidInput(f"the task spec has {size} bytes, at most {MAX_SPEC_BYTES} are allowed")
    return text


def checked_tags(task: NewTask) -> tuple[list[str], list[str]]:
    """Tags and labels sorted and unique; raises InvalidInput.

    A node call has one more tag, which only workers with that handler have.
    """
    node = task.spec.node
    own = () if isinstance(node, msgspec.UnsetType) else (node_tag(node.type),)
    if len(task.depends_on) > MAX_DEPENDENCIES:
        raise InvalidInput(f"a task may depend on at most {MAX_DEPENDENCIES} others")
    try:
        tags = normalised_tags((*task.tags, *own))
        return tags, normalised_tags(task.labels, max_items=MAX_LABELS)
    except InvalidValue as error:
        raise InvalidInput(str(error)) from error


def refuse_node_call(spec: TaskSpec) -> None:
    """For tasks of suites, which node managers run. Raises InvalidInput."""
    if spec.node is not msgspec.UNSET:
        raise InvalidInput("task_spec: a node call runs on direct workers, which serve no suites")


def row_of(task: NewTask, uuid: UUID) -> dict[str, object]:
    """The members that tasks/sql/submit/insert.sql reads, but for those of `link_members`."""
    tags, labels = checked_tags(task)
    retry = task.retry
    return {
        "uuid": uuid,
        "priority": task.priority,
        "tags": tags,
        "labels": labels,
        "lane": lane_of(tags, task.pinned_runner_id),
        "timeout_s": task.timeout_s,
        "spec": msgspec.Raw(encode_spec(task.spec).encode()),
        "max_failures": retry.max_failures,
        "max_attempts": retry.max_attempts,
        "backoff_s": retry.backoff_s,
        "backoff_max_s": retry.backoff_max_s,
        "retry_on": retry.retry_on,
        "not_before": task.not_before,
        "concurrency_key": task.concurrency_key,
        "affinity": task.affinity,
        "resource_refs": task.resource_refs,
        "middleware": task.middleware,
        "limits": task.limits,
        "pinned_runner_id": task.pinned_runner_id,
    }


def link_members(links: Links) -> dict[str, object]:
    """The rest of a row: its place in the graph."""
    return {
        "id": links.id,
        "state": links.state.code,
        "waiting_on": links.waiting_on,
        "dependents": links.dependents,
    }


def encode_rows(rows: list[dict[str, object]]) -> str:
    """The parameter `rows` of insert.sql."""
    return _json.encode(rows).decode()
