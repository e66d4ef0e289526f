"""Requests about sessions, users, groups and the files of groups."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from mitosis_client.calls.call import Call, Pages, given, key_path, part
from mitosis_client.fleet_models import (
    Group,
    Health,
    Quota,
    Roles,
    UserState,
)
from mitosis_client.models import (
    Attachment,
    Download,
    Token,
    Upload,
)


def health() -> Call[Health]:
    return Call("GET", "/health", Health)


def login(username: str, password: str, *, retain: bool = True) -> Call[Token]:
    """`retain` keeps the user's other sessions alive."""
    body = {"username": username, "md5_password": digest(password), "retain": retain}
    return Call("POST", "/login", Token, body=body)


def whoami() -> Call[str]:
    return Call("GET", "/auth", str)


def roles() -> Call[Roles]:
    return Call("GET", "/users/groups", Roles)


def change_password(username: str, old: str, new: str) -> Call[Token]:
    body = {"old_md5_password": digest(old), "new_md5_password": digest(new)}
    return Call("POST", f"/users/{part(username)}/password", Token, body=body)


def create_group(name: str) -> Call[None]:
    return Call("POST", "/groups", type(None), body={"group_name": name})


def group(name: str) -> Call[Group]:
    return Call("GET", f"/groups/{part(name)}", Group)


def set_members(name: str, relations: Mapping[str, str]) -> Call[None]:
    body = {"relations": dict(relations)}
    return Call("PUT", f"/groups/{part(name)}/users", type(None), body=body)


def remove_members(name: str, users: Sequence[str]) -> Call[None]:
    return Call(
        "POST", f"/groups/{part(name)}/users/remove", type(None), body={"users": list(users)}
    )


def attachments(group_name: str, *, key: str | None = None) -> Pages[Attachment]:
    path = f"/groups/{part(group_name)}/attachments/query"

    def page(offset: int, limit: int) -> Call[dict[str, Any]]:
        body = given(key=key, offset=offset, limit=limit, count=False)
        return Call("POST", path, dict, body=body)

    return Pages(page, "attachments", Attachment)


def attachment(group_name: str, key: str) -> Call[Attachment]:
    return Call("GET", f"/groups/{part(group_name)}/attachments/{key_path(key)}", Attachment)


def upload_attachment(
    group_name: str, key: str, *, size: int, sha256: str | None = None
) -> Call[Upload]:
    body = given(key=key, content_length=size, sha256=sha256)
    return Call("POST", f"/groups/{part(group_name)}/attachments", Upload, body=body)


def download_attachment(group_name: str, key: str) -> Call[Download]:
    path = f"/groups/{part(group_name)}/download/attachments/{key_path(key)}"
    return Call("GET", path, Download)


def delete_attachment(group_name: str, key: str, *, as_admin: bool = False) -> Call[None]:
    path = f"/groups/{part(group_name)}/attachments/{key_path(key)}"
    return Call("DELETE", f"/admin{path}" if as_admin else path, type(None))


def create_user(username: str, password: str, *, admin: bool = False) -> Call[None]:
    body = {"username": username, "md5_password": digest(password), "admin": admin}
    return Call("POST", "/admin/users", type(None), body=body)


def delete_user(username: str) -> Call[UserState]:
    return Call("DELETE", f"/admin/users/{part(username)}", UserState)


def set_user_state(username: str, state: str) -> Call[UserState]:
    return Call("POST", f"/admin/users/{part(username)}/state", UserState, body={"state": state})


def set_password(username: str, password: str) -> Call[None]:
    body = {"new_md5_password": digest(password)}
    return Call("POST", f"/admin/users/{part(username)}/password", type(None), body=body)


def group_quota(username: str, quota: str) -> Call[Quota]:
    return Call(
        "POST", f"/admin/users/{part(username)}/group-quota", Quota, body={"group_quota": quota}
    )


def storage_quota(group_name: str, quota: str) -> Call[Quota]:
    return Call(
        "POST",
        f"/admin/groups/{part(group_name)}/storage-quota",
        Quota,
        body={"storage_quota": quota},
    )


def shutdown_coordinator(secret: str) -> Call[None]:
    return Call("POST", "/admin/shutdown", type(None), body={"secret": secret})


def digest(password: str) -> list[int]:
    """The form the wire has had from the beginning; the server keeps Argon2 of it."""
    return list(hashlib.md5(password.encode(), usedforsecurity=False).digest())
