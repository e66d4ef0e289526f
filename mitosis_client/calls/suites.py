"""Requests about suites."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from mitosis_client.calls.call import Call, Pages, given, joined, part
from mitosis_client.models import (
    Explanation,
    Rerun,
    Suite,
    SuiteCancelled,
    SuiteCreated,
    SuiteDetail,
    SuiteState,
)
from mitosis_protocol.suites import SuiteSpec


def create(spec: SuiteSpec) -> Call[SuiteCreated]:
    """A new suite. Members left at their defaults are the installation's business."""
    members = {
        name: value for name, value in msgspec.to_builtins(spec).items() if value is not None
    }
    return Call("POST", "/suites", SuiteCreated, body=members)


def query(
    *,
    group_name: str | None = None,
    name: str | None = None,
    states: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
    labels: Iterable[str] | None = None,
) -> Pages[Suite]:
    """Suites of the caller's groups, newest first."""
    wanted = given(
        group_name=group_name,
        name=name,
        state=joined(states),
        tags=joined(tags),
        labels=joined(labels),
    )

    def page(offset: int, limit: int) -> Call[dict[str, Any]]:
        return Call("GET", "/suites", dict, params={**wanted, "offset": offset, "limit": limit})

    return Pages(page, "suites", Suite)


def show(uuid: str) -> Call[SuiteDetail]:
    return Call("GET", _path(uuid), SuiteDetail)


def change(uuid: str, **members: Any) -> Call[SuiteDetail]:
    """Name, description, labels, priority."""
    return Call("PATCH", _path(uuid), SuiteDetail, body=members)


def delete(uuid: str) -> Call[None]:
    """Only a suite that never had a task."""
    return Call("DELETE", _path(uuid), type(None))


def close(uuid: str) -> Call[SuiteState]:
    return _life(uuid, "close")


def reopen(uuid: str) -> Call[SuiteState]:
    return _life(uuid, "reopen")


def pause(uuid: str) -> Call[SuiteState]:
    return _life(uuid, "pause")


def resume(uuid: str) -> Call[SuiteState]:
    return _life(uuid, "resume")


def cancel(
    uuid: str, *, reason: str | None = None, cancel_running_tasks: bool = True
) -> Call[SuiteCancelled]:
    body = given(reason=reason, cancel_running_tasks=cancel_running_tasks)
    return Call("POST", _path(uuid, "cancel"), SuiteCancelled, body=body)


def scale(
    uuid: str, *, workers: int | None = None, prefetch: int = 0, max_running: int | None = None
) -> Call[SuiteDetail]:
    body: dict[str, Any] = given(max_running=max_running)
    if workers is not None:
        body["worker_schedule"] = {"worker_count": workers, "task_prefetch_count": prefetch}
    return Call("PUT", _path(uuid, "scale"), SuiteDetail, body=body)


def rerun(
    uuid: str, *, outcomes: Sequence[str] | None = None, task_uuids: Sequence[str] | None = None
) -> Call[Rerun]:
    body = given(outcomes=outcomes, task_uuids=task_uuids)
    return Call("POST", _path(uuid, "rerun"), Rerun, body=body)


def explain(uuid: str) -> Call[Explanation]:
    return Call("GET", _path(uuid, "explain"), Explanation)


def refresh_managers(uuid: str) -> Call[dict[str, Any]]:
    return Call("POST", _path(uuid, "managers/refresh"), dict)


def events_path(uuid: str) -> str:
    return _path(uuid, "events")


def _life(uuid: str, verb: str) -> Call[SuiteState]:
    return Call("POST", _path(uuid, verb), SuiteState)


def _path(uuid: str, rest: str = "") -> str:
    return f"/suites/{part(uuid)}" + (f"/{rest}" if rest else "")
