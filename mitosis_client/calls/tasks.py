"""Requests about tasks, their output and their archives."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mitosis_client.calls.call import Call, Pages, given, part, with_key
from mitosis_client.models import (
    Download,
    EventPage,
    Explanation,
    Submitted,
    SubmittedArray,
    Task,
    TaskDetail,
    TasksCancelled,
)
from mitosis_protocol.durations import parse_duration
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.specs import TaskSpec

ARRAY_TIMEOUT_S = 120.0  # 100,000 rows are written in one answer


class NewTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a submit says; in an array, the template in which `{name}` stands for a parameter."""

    args: Sequence[str]
    group_name: str
    suite_uuid: str | None = None
    envs: Mapping[str, str] = {}
    resources: Sequence[Mapping[str, Any]] = ()
    tags: Sequence[str] = ()
    labels: Sequence[str] = ()
    timeout: str = "1h"
    priority: int = 0
    terminal_output: bool = True
    depends_on: Sequence[str] | None = None
    retry: Mapping[str, Any] | None = None
    limits: Mapping[str, Any] | None = None
    concurrency_key: str | None = None

    def body(self) -> dict[str, Any]:
        spec = {
            "args": list(self.args),
            "envs": dict(self.envs),
            "resources": list(self.resources),
            "terminal_output": self.terminal_output,
        }
        # Refused here, before it costs a round trip.
        msgspec.convert(spec, TaskSpec)
        try:
            parse_duration(self.timeout)
        except InvalidValue as error:
            raise InvalidValue(f"timeout: {error}") from error
        return given(
            group_name=self.group_name,
            suite_uuid=self.suite_uuid,
            tags=list(self.tags),
            labels=list(self.labels),
            timeout=self.timeout,
            priority=self.priority,
            task_spec=spec,
            depends_on=None if self.depends_on is None else list(self.depends_on),
            retry=self.retry,
            limits=self.limits,
            concurrency_key=self.concurrency_key,
        )


def submit(task: NewTask, *, key: str | None = None) -> Call[Submitted]:
    return Call("POST", "/tasks", Submitted, body=task.body(), headers=with_key(key))


def submit_array(
    template: NewTask, rows: Iterable[Mapping[str, Any]], *, key: str | None = None
) -> Call[SubmittedArray]:
    """One task per row of parameters; all of them or none."""
    body = {"template": template.body(), "rows": [{"params": dict(row)} for row in rows]}
    return Call(
        "POST",
        "/tasks/array",
        SubmittedArray,
        body=body,
        headers=with_key(key),
        timeout_s=ARRAY_TIMEOUT_S,
    )


def show(uuid: str) -> Call[TaskDetail]:
    return Call("GET", _path(uuid), TaskDetail)


def query(  # noqa: PLR0913 - one for each condition
    *,
    group_name: str | None = None,
    suite_uuid: str | None = None,
    states: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    exit_status: str | None = None,
    uuid_prefix: str | None = None,
    task_id: int | None = None,
) -> Pages[Task]:
    """The tasks of a group that match, oldest first."""
    wanted = given(
        group_name=group_name,
        suite_uuid=suite_uuid,
        states=states or None,
        labels=labels or None,
        exit_status=exit_status,
        uuid_prefix=uuid_prefix,
        task_id=task_id,
    )

    def page(offset: int, limit: int) -> Call[dict[str, Any]]:
        body = {**wanted, "offset": offset, "limit": limit, "count": False}
        return Call("POST", "/tasks/query", dict, body=body)

    return Pages(page, "tasks", Task, size=1000)


def cancel(uuid: str) -> Call[None]:
    return Call("DELETE", _path(uuid), type(None))


def cancel_many(uuids: Sequence[str]) -> Call[TasksCancelled]:
    return Call("POST", "/tasks/cancel/list", TasksCancelled, body={"uuids": list(uuids)})


def relabel(uuid: str, labels: Sequence[str]) -> Call[None]:
    return Call("PUT", _path(uuid, "labels"), type(None), body={"labels": list(labels)})


def explain(uuid: str) -> Call[Explanation]:
    return Call("GET", _path(uuid, "explain"), Explanation)


def artifact(uuid: str, content_type: str) -> Call[Download]:
    """A URL to fetch an archive: `result`, `exec-log` or `std-log`."""
    return Call("GET", _path(uuid, f"download/artifacts/{part(content_type)}"), Download)


def delete_artifact(uuid: str, content_type: str) -> Call[None]:
    return Call("DELETE", _path(uuid, f"artifacts/{part(content_type)}"), type(None))


def log_path(uuid: str) -> str:
    return _path(uuid, "logs")


def events_path(uuid: str) -> str:
    return _path(uuid, "events")


def group_events(cursor: str = "", *, limit: int | None = None) -> Call[EventPage]:
    """What happened in the caller's groups behind the cursor; `newest` begins now."""
    return Call("GET", "/events", EventPage, params=given(cursor=cursor, limit=limit))


def _path(uuid: str, rest: str = "") -> str:
    return f"/tasks/{part(uuid)}" + (f"/{rest}" if rest else "")
