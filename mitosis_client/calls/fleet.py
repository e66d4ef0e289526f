"""Requests about node managers and independent workers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mitosis_client.calls.call import Call, Pages, given, joined, part
from mitosis_client.fleet_models import (
    Consents,
    Manager,
    ManagerDetail,
    ManagerWish,
    WorkerDetail,
)


def managers(
    *,
    group_name: str | None = None,
    states: Iterable[str] | None = None,
    tags: Iterable[str] | None = None,
    labels: Iterable[str] | None = None,
) -> Pages[Manager]:
    wanted = given(
        group_name=group_name, state=joined(states), tags=joined(tags), labels=joined(labels)
    )

    def page(offset: int, limit: int) -> Call[dict[str, Any]]:
        return Call("GET", "/managers", dict, params={**wanted, "offset": offset, "limit": limit})

    return Pages(page, "managers", Manager)


def manager(uuid: str) -> Call[ManagerDetail]:
    return Call("GET", _path(uuid), ManagerDetail)


def metrics(uuid: str, *, window: str = "1h") -> Call[dict[str, Any]]:
    return Call("GET", _path(uuid, "metrics"), dict, params={"window": window})


def drain(uuid: str, *, reason: str = "") -> Call[ManagerWish]:
    return Call("POST", _path(uuid, "drain"), ManagerWish, body={"reason": reason})


def undrain(uuid: str) -> Call[ManagerWish]:
    return Call("POST", _path(uuid, "undrain"), ManagerWish, body={})


def quarantine(uuid: str, *, reason: str = "") -> Call[ManagerWish]:
    return Call("POST", _path(uuid, "quarantine"), ManagerWish, body={"reason": reason})


def release(uuid: str) -> Call[ManagerWish]:
    return Call("POST", _path(uuid, "release"), ManagerWish, body={})


def shutdown(uuid: str, *, force: bool = False) -> Call[ManagerWish]:
    op = "Force" if force else "Graceful"
    return Call("POST", _path(uuid, "shutdown"), ManagerWish, body={"op": op})


def revoke(uuid: str) -> Call[None]:
    return Call("POST", _path(uuid, "revoke"), type(None), body={})


def grant(uuid: str, roles: Mapping[str, str]) -> Call[Consents]:
    """Give groups a role on the manager; it counts once they accept."""
    return Call("PUT", _path(uuid, "groups"), Consents, body={"relations": dict(roles)})


def withdraw(uuid: str, groups: Sequence[str]) -> Call[None]:
    return Call("DELETE", _path(uuid, "groups"), type(None), params={"groups": list(groups)})


def consent(uuid: str, group: str, *, accept: bool) -> Call[Consents]:
    return Call(
        "POST", _path(uuid, f"groups/{part(group)}/consent"), Consents, body={"accept": accept}
    )


def retag(uuid: str, tags: Sequence[str]) -> Call[None]:
    return Call("PUT", _path(uuid, "tags"), type(None), body={"tags": list(tags)})


def relabel(uuid: str, labels: Sequence[str]) -> Call[None]:
    return Call("PUT", _path(uuid, "labels"), type(None), body={"labels": list(labels)})


def workers(
    *, group_name: str | None = None, tags: Sequence[str] | None = None
) -> Call[dict[str, Any]]:
    """Independent and direct workers; the route has no pages."""
    body = given(group_name=group_name, tags=list(tags) if tags else None)
    return Call("POST", "/workers/query", dict, body={**body, "count": False})


def worker(uuid: str) -> Call[WorkerDetail]:
    return Call("GET", f"/workers/{part(uuid)}", WorkerDetail)


def shutdown_worker(uuid: str, *, force: bool = False) -> Call[None]:
    params = {"op": "force" if force else "graceful"}
    return Call("DELETE", f"/workers/{part(uuid)}", type(None), params=params)


def _path(uuid: str, rest: str = "") -> str:
    return f"/managers/{part(uuid)}" + (f"/{rest}" if rest else "")
