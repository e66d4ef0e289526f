"""What a submit may say, as msgspec structs, and how it becomes a NewTask.

`SubmitTask` is the existing body (six required members) with ours beside them; an array has the
same as its template. Shapes are checked by the types, rules when the struct is made.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from core.errors import InvalidInput
from core.fields import normalised_tags
from mitosis_protocol.durations import parse_duration
from mitosis_protocol.enums import DependencyCondition
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import (
    KIB,
    MAX_ARRAY_TASKS,
    MAX_DEPENDENCIES,
    MAX_FAILURES_CEILING,
    MAX_FAILURES_DEFAULT,
    MAX_LABELS,
)
from mitosis_protocol.node_calls import (
    NODE_TAG_PREFIX,
    Affinity,
    Middleware,
    WorkerResource,
)
from mitosis_protocol.specs import Int32, TaskSpec
from mitosis_protocol.suites import ResourceLimits, RetryOn
from suites.models import TaskSuite
from tasks.new_task import Dependency, NewTask, RetryPolicy, refuse_node_call
from tasks.services.array import ArrayRow

MAX_EXTRA_BYTES: Final = 16 * KIB  # of affinity, resource_refs or middleware: they ride in a frame
MAX_KEY_CHARS: Final = 255
MAX_PARAMS: Final = 64  # of one array row

# Only for the document: what is read is decided by parse_duration.
Duration: TypeAlias = Annotated[
    str,
    Meta(
        extra_json_schema={
            "pattern": r"^\s*([0-9]+(\.[0-9]+)?\s*[A-Za-z\u00b5]+\s*)+$|^0$",
            "description": "Like `1h 30m`.",
        }
    ),
]
RowIndex: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_ARRAY_TASKS)]


class DependsOn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An upstream task by uuid (or, in an array, a row by its index) and how it has to end."""

    task: UUID | RowIndex
    condition: DependencyCondition = DependencyCondition.OK


Dependencies: TypeAlias = Annotated[
    list[UUID | RowIndex | DependsOn], Meta(max_length=MAX_DEPENDENCIES)
]


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None: the suite's default, then the installation's."""

    max_failures: Annotated[int, Meta(ge=1, le=MAX_FAILURES_CEILING)] | None = None
    backoff_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    backoff_max_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    retry_on: RetryOn | None = None


class SubmitTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Unknown members are ignored, as existing clients expect."""

    group_name: str
    tags: list[str]
    labels: list[str]
    timeout: Duration
    priority: Int32
    task_spec: TaskSpec
    suite_uuid: UUID | None = None
    depends_on: Dependencies | None = None
    retry: Retry | None = None
    limits: ResourceLimits | None = None
    concurrency_key: Annotated[str, Meta(min_length=1, max_length=MAX_KEY_CHARS)] | None = None
    affinity: Affinity | None = None
    resource_refs: list[WorkerResource] | None = None
    middleware: Middleware | None = None

    def __post_init__(self) -> None:
        _named("timeout", lambda: parse_duration(self.timeout))
        _named("tags", lambda: _refuse_node_tags(self.tags))
        _named("tags", lambda: normalised_tags(self.tags))
        _named("labels", lambda: normalised_tags(self.labels, max_items=MAX_LABELS))
        for member in ("affinity", "resource_refs", "middleware"):
            value = getattr(self, member)
            if value is not None and len(msgspec.json.encode(value)) > MAX_EXTRA_BYTES:
                raise InvalidValue(f"{member}: more than {MAX_EXTRA_BYTES} bytes of JSON")


class ChangeTask(msgspec.Struct, frozen=True, kw_only=True):
    """What may change while a task waits; a missing member and null leave it alone."""

    tags: list[str] | None = None
    timeout: Duration | None = None
    priority: Int32 | None = None
    task_spec: TaskSpec | None = None

    def __post_init__(self) -> None:
        _named("timeout", lambda: self.timeout_s)
        _named("tags", lambda: normalised_tags(self.tags or ()))
        _named("tags", lambda: _refuse_node_tags(self.tags or ()))

    @property
    def timeout_s(self) -> int | None:
        return None if self.timeout is None else parse_duration(self.timeout)


class ParamRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What differs from the template: `{name}` in it becomes the parameter of that name."""

    params: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=64)], str | int | float | bool],
        Meta(max_length=MAX_PARAMS),
    ] = {}
    priority: Int32 | None = None
    depends_on: Dependencies | None = None


class SubmitArray(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A template and one row per task; up to 100,000 rows."""

    template: SubmitTask
    rows: Annotated[list[ParamRow], Meta(min_length=1, max_length=MAX_ARRAY_TASKS)]


def new_task(
    body: SubmitTask, *, suite: TaskSuite | None, pinned_runner_id: int | None = None
) -> NewTask:
    """The task to store; what it leaves open comes from its suite. Raises InvalidInput."""
    limits = body.limits
    if suite is not None:
        refuse_node_call(body.task_spec)
    return NewTask(
        spec=body.task_spec,
        timeout_s=parse_duration(body.timeout),
        tags=body.tags,
        labels=body.labels,
        priority=body.priority,
        depends_on=dependencies(body.depends_on),
        retry=_retry(body.retry, suite),
        limits=(suite.limits if suite else None) if limits is None else msgspec.to_builtins(limits),
        concurrency_key=body.concurrency_key,
        affinity=_plain(body.affinity),
        resource_refs=_plain(body.resource_refs),
        middleware=_plain(body.middleware),
        pinned_runner_id=pinned_runner_id,
    )


def array_row(row: ParamRow) -> ArrayRow:
    return ArrayRow(
        params={name: _parameter(value) for name, value in row.params.items()},
        priority=row.priority,
        depends_on=dependencies(row.depends_on),
    )


def dependencies(given: list[UUID | int | DependsOn] | None) -> tuple[Dependency, ...]:
    return tuple(
        Dependency(item.task, item.condition) if isinstance(item, DependsOn) else Dependency(item)
        for item in given or ()
    )


def refuse_row_numbers(body: SubmitTask) -> None:
    """A single task has no rows to point at."""
    if any(isinstance(found.upstream, int) for found in dependencies(body.depends_on)):
        raise InvalidInput("depends_on: row numbers mean something in an array only")


def _retry(given: Retry | None, suite: TaskSuite | None) -> RetryPolicy:
    default = msgspec.convert((suite.retry if suite else None) or {}, Retry)
    asked = given or Retry()
    retry_on = default.retry_on if asked.retry_on is None else asked.retry_on
    return RetryPolicy(
        max_failures=asked.max_failures or default.max_failures or MAX_FAILURES_DEFAULT,
        backoff_s=default.backoff_s if asked.backoff_s is None else asked.backoff_s,
        backoff_max_s=default.backoff_max_s if asked.backoff_max_s is None else asked.backoff_max_s,
        retry_on=None if retry_on is None else msgspec.to_builtins(retry_on),
    )


def _refuse_node_tags(tags: Iterable[str]) -> None:
    if any(tag.startswith(NODE_TAG_PREFIX) for tag in tags):
        raise InvalidValue(f"`{NODE_TAG_PREFIX}` is reserved; name the node in task_spec")


def _plain(value: Any) -> Any:
    return None if value is None else msgspec.to_builtins(value)


def _parameter(value: str | float | bool) -> str:
    """As JSON writes it, strings without their quotes: true, 0.1, run-7."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _named(field: str, check: Any) -> None:
    try:
        check()
    except InvalidValue as error:
        raise InvalidValue(f"{field}: {error}") from error
