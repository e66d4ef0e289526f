"""The admin API for users, quotas and shutdown."""

import os
import signal
from collections.abc import Callable, Iterator

import pytest
from django.core.management import call_command
from django.test import Client

from accounts.models import AuditEntry, Group, Membership, User
from accounts.services.shutdown import shutdown_secret
from mitosis_protocol.enums import Role, UserState
from tests.integration.accounts.api_client import Api, digest

pytestmark = pytest.mark.django_db


def new_user(name: object, **extra: object) -> dict[str, object]:
    return {"username": name, "md5_password": digest(), "admin": False, **extra}


ADMIN_CALLS = [
    ("POST", "/admin/users", new_user("eve")),
    ("DELETE", "/admin/users/ada", None),
    ("POST", "/admin/users/ada/state", {"state": "Locked"}),
    ("POST", "/admin/users/ada/password", {"new_md5_password": digest()}),
    ("POST", "/admin/users/ada/group-quota", {"group_quota": "+1"}),
    ("POST", "/admin/groups/ada/storage-quota", {"storage_quota": "+1"}),
    ("POST", "/admin/shutdown", {"secret": shutdown_secret()}),
]


@pytest.mark.parametrize(("method", "path", "body"), ADMIN_CALLS)
def test_only_admins_may(
    ada: Api, anonymous: Api, method: str, path: str, body: dict[str, object] | None
) -> None:
    before = list(User.objects.values("username", "state", "group_quota", "password"))
    refused = ada.call(method, path, body)
    assert refused.status_code == 403
    assert refused.json()["msg"] == "Authentication error: Permission denied"
    assert anonymous.call(method, path, body).status_code == 400
    assert list(User.objects.values("username", "state", "group_quota", "password")) == before


def test_permission_is_checked_before_the_body_is_read(ada: Api) -> None:
    answer = ada.client.generic(
        "POST",
        "/admin/users",
        b"{broken",
        "application/json",
        headers={"authorization": f"Bearer {ada.token}"},
    )
    assert answer.status_code == 403


def test_creating_a_user_makes_its_group_and_membership(admin_api: Api) -> None:
    answer = admin_api.post("/admin/users", new_user("eve"))
    assert (answer.status_code, answer.content) == (200, b"")
    eve = User.objects.get(username="eve")
    membership = Membership.objects.get(user=eve)
    assert (membership.group.name, membership.group.creator, membership.role) == (
        "eve",
        eve,
        Role.ADMIN,
    )
    assert (eve.is_staff, eve.group_count, eve.group_quota) == (False, 1, 8)
    assert membership.group.storage_quota == 16_000_000_000
    assert admin_api.login("eve").status_code == 200


def test_an_admin_can_make_admins(admin_api: Api) -> None:
    admin_api.post("/admin/users", new_user("eve", admin=True))
    token = admin_api.login("eve").json()["token"]
    assert Api(Client(), token).post("/admin/users", new_user("mal")).status_code == 200


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "ä", "a\n", "x" * 256, "x" * 100_000])
def test_invalid_user_names(admin_api: Api, name: str) -> None:
    answer = admin_api.post("/admin/users", new_user(name))
    assert answer.status_code == 400
    assert answer.json()["msg"] == "Process request error: Invalid username"


def test_a_name_is_taken_by_users_and_by_groups(admin_api: Api) -> None:
    admin_api.post("/groups", {"group_name": "lab"})
    for taken in ("root", "lab"):
        answer = admin_api.post("/admin/users", new_user(taken))
        assert answer.status_code == 409
        assert answer.json()["msg"] == f"User or group with same name {taken} already exists"
    assert not User.objects.filter(username="lab").exists()
    assert Group.objects.count() == 2


def test_a_deleted_user_keeps_its_name_and_loses_its_tokens_for_good(
    admin_api: Api, ada: Api
) -> None:
    answer = admin_api.delete("/admin/users/ada")
    assert (answer.status_code, answer.json()) == (200, {"state": "Deleted"})
    assert ada.get("/auth").status_code == 401
    assert admin_api.post("/admin/users", new_user("ada")).status_code == 409
    assert admin_api.post("/admin/users/ada/state", {"state": "Active"}).json() == {
        "state": "Active"
    }
    assert ada.get("/auth").status_code == 401
    assert admin_api.login("ada").status_code == 200


def test_locking_and_unlocking(admin_api: Api, ada: Api) -> None:
    assert admin_api.post("/admin/users/ada/state", {"state": "Locked"}).json() == {
        "state": "Locked"
    }
    assert admin_api.login("ada").status_code == 403
    admin_api.post("/admin/users/ada/state", {"state": "Active"})
    assert admin_api.login("ada").status_code == 200


@pytest.mark.parametrize("state", ["active", "ACTIVE", "Gone", "", 0, None, ["Active"]])
def test_unknown_states(admin_api: Api, ada: Api, state: object) -> None:
    answer = admin_api.post("/admin/users/ada/state", {"state": state})
    assert answer.status_code == 422
    assert "state" in answer.json()["msg"]
    assert User.objects.get(username="ada").state is UserState.ACTIVE


def test_setting_a_password_drops_the_sessions(admin_api: Api, ada: Api) -> None:
    browser = Client()
    browser.force_login(User.objects.get(username="ada"))
    body = {"new_md5_password": digest("other")}
    answer = admin_api.post("/admin/users/ada/password", body)
    assert (answer.status_code, answer.content) == (200, b"")
    assert ada.get("/auth").status_code == 401
    assert browser.get("/auth").status_code == 400
    assert admin_api.login("ada").status_code == 401
    assert admin_api.login("ada", "other").status_code == 200


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["+2"], 10),
        (["-3"], 5),
        (["-100"], 0),
        (["=4"], 4),
        (["4"], 4),
        (["=0", "+1", "+1"], 2),
    ],
)
def test_group_quota(admin_api: Api, ada: Api, changes: list[str], expected: int) -> None:
    for change in changes:
        answer = admin_api.post("/admin/users/ada/group-quota", {"group_quota": change})
    assert (answer.status_code, answer.json()) == (200, {"group_quota": expected})


@pytest.mark.parametrize(
    "change", ["", "x", "+", "1.5", "++1", "1e3", "99999999999", "=2147483648"]
)
def test_bad_group_quotas(admin_api: Api, ada: Api, change: str) -> None:
    answer = admin_api.post("/admin/users/ada/group-quota", {"group_quota": change})
    assert answer.status_code == 400
    assert "group_quota" in answer.json()["msg"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("10GB", 10**10),
        ("=1GiB", 2**30),
        ("+1.5 MiB", 16 * 10**9 + 1_572_864),
        ("-20GB", -4 * 10**9),
        ("2048", 2048),
    ],
)
def test_storage_quota(admin_api: Api, ada: Api, change: str, expected: int) -> None:
    answer = admin_api.post("/admin/groups/ada/storage-quota", {"storage_quota": change})
    assert (answer.status_code, answer.json()) == (200, {"storage_quota": expected})


@pytest.mark.parametrize("change", ["", "x", "10XB", "+", "1e999", "9223372036854775807E", "+8EiB"])
def test_bad_storage_quotas(admin_api: Api, ada: Api, change: str) -> None:
    answer = admin_api.post("/admin/groups/ada/storage-quota", {"storage_quota": change})
    assert answer.status_code == 400
    assert Group.objects.get(name="ada").storage_quota == 16_000_000_000


@pytest.mark.parametrize("name", ["nobody", "%00", "a%20b", "%F0%9F%92%A9", "x" * 2000])
def test_unknown_users_and_groups(admin_api: Api, name: str) -> None:
    calls = [
        ("DELETE", f"/admin/users/{name}", None),
        ("POST", f"/admin/users/{name}/state", {"state": "Locked"}),
        ("POST", f"/admin/users/{name}/password", {"new_md5_password": digest()}),
        ("POST", f"/admin/users/{name}/group-quota", {"group_quota": "1"}),
        ("POST", f"/admin/groups/{name}/storage-quota", {"storage_quota": "1"}),
    ]
    for method, path, body in calls:
        assert admin_api.call(method, path, body).status_code == 404, path


@pytest.fixture
def terminations() -> Iterator[list[int]]:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    yield seen
    signal.signal(signal.SIGTERM, before)


def test_shutdown_with_the_right_secret_stops_the_process(
    admin_api: Api, terminations: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("shutdown_secret")
    secret = capsys.readouterr().out.strip()
    answer = admin_api.post("/admin/shutdown", {"secret": secret})
    assert (answer.status_code, answer.content) == (200, b"")
    assert terminations == [signal.SIGTERM]
    assert os.getpid() > 0


@pytest.mark.parametrize("secret", ["", "wrong", "ä", "x" * 100_000])
def test_shutdown_with_a_wrong_secret_is_refused(
    admin_api: Api, terminations: list[int], secret: str
) -> None:
    assert admin_api.post("/admin/shutdown", {"secret": secret}).status_code == 403
    assert terminations == []


def test_every_admin_change_is_in_the_audit_log(
    admin_api: Api, make_user: Callable[..., User]
) -> None:
    make_user("ada")
    last = AuditEntry.objects.order_by("-id").values_list("id", flat=True).first() or 0
    for method, path, body in ADMIN_CALLS[:-1]:
        assert admin_api.call(method, path, body).status_code == 200
    entries = AuditEntry.objects.filter(id__gt=last).order_by("id")
    assert [(entry.action, entry.object) for entry in entries] == [
        ("user.create", "eve"),
        ("user.state", "ada"),
        ("user.state", "ada"),
        ("user.password", "ada"),
        ("user.group_quota", "ada"),
        ("group.storage_quota", "ada"),
    ]
    assert {(entry.actor_kind, entry.actor_id) for entry in entries} == {("user", "root")}
