"""Groups and members over HTTP, and what strangers cannot learn."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from accounts.models import Group, Membership, User
from accounts.services.sessions import issue_user_token
from mitosis_protocol.enums import Role
from tests.integration.accounts.api_client import Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def bob(as_user: Callable[..., Api]) -> Api:
    return as_user("bob")


@pytest.fixture
def lab(ada: Api) -> Group:
    assert ada.post("/groups", {"group_name": "lab"}).status_code == 200
    return Group.objects.get(name="lab")


def give(ada: Api, user: str, role: str) -> None:
    assert ada.put("/groups/lab/users", {"relations": {user: role}}).status_code == 200


def test_creating_a_group_makes_the_caller_admin(ada: Api) -> None:
    answer = ada.post("/groups", {"group_name": "lab"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert ada.get("/users/groups").json() == {"groups": {"ada": "Admin", "lab": "Admin"}}


def test_the_group_quota_counts_the_own_group(ada: Api) -> None:
    statuses = [ada.post("/groups", {"group_name": f"g{n}"}).status_code for n in range(8)]
    assert statuses == [200] * 7 + [403]
    answer = ada.post("/groups", {"group_name": "more"})
    assert answer.json()["msg"] == "Resource quota exceeded"
    assert User.objects.get(username="ada").group_count == 8


def test_a_taken_name_costs_no_quota(ada: Api, bob: Api) -> None:
    for taken in ("ada", "bob"):
        assert ada.post("/groups", {"group_name": taken}).status_code == 409
    assert User.objects.get(username="ada").group_count == 1


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../x", "x" * 256, "lab\n", "käse"])
def test_invalid_group_names(ada: Api, name: str) -> None:
    answer = ada.post("/groups", {"group_name": name})
    assert answer.status_code == 400
    assert "Invalid group name" in answer.json()["msg"]


@pytest.mark.parametrize("name", [None, 5, ["lab"], {"a": 1}, True])
def test_group_names_of_the_wrong_type(ada: Api, name: object) -> None:
    assert ada.post("/groups", {"group_name": name}).status_code == 422


def test_group_info_for_an_admin(ada: Api, lab: Group) -> None:
    info = ada.get("/groups/lab").json()
    moment = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6} \+00:00:00")
    assert moment.fullmatch(info.pop("created_at"))
    assert moment.fullmatch(info.pop("updated_at"))
    assert info == {
        "group_name": "lab",
        "creator_username": "ada",
        "state": "Active",
        "task_count": 0,
        "storage_quota": 16_000_000_000,
        "storage_used": 0,
        "priority_ceiling": None,
        "drain_limits": {"mem_pct": None, "disk_pct": None},
        "worker_count": 0,
        "users_in_group": {"ada": "Admin"},
    }


@pytest.mark.parametrize("role", ["Read", "Write"])
def test_members_see_the_group_without_its_users(ada: Api, bob: Api, lab: Group, role: str) -> None:
    give(ada, "bob", role)
    assert bob.get("/groups/lab").json()["users_in_group"] is None


def test_a_strangers_group_is_indistinguishable_from_none(bob: Api, lab: Group) -> None:
    calls = [
        ("GET", "/groups/{}", None),
        ("PUT", "/groups/{}/users", {"relations": {"bob": "Admin"}}),
        ("DELETE", "/groups/{}/users?users=ada", None),
        ("POST", "/groups/{}/users/remove", {"users": ["ada"]}),
    ]
    for method, path, body in calls:
        foreign = bob.call(method, path.format("lab"), body)
        absent = bob.call(method, path.format("nil"), body)
        assert foreign.status_code == absent.status_code == 404
        assert foreign.content.replace(b"lab", b"nil") == absent.content


def test_admins_of_the_installation_are_strangers_too(admin_api: Api, lab: Group) -> None:
    assert admin_api.get("/groups/lab").status_code == 404


@pytest.mark.parametrize("role", ["Read", "Write"])
def test_only_group_admins_change_members(ada: Api, bob: Api, lab: Group, role: str) -> None:
    give(ada, "bob", role)
    assert bob.put("/groups/lab/users", {"relations": {"bob": "Admin"}}).status_code == 403
    assert bob.delete("/groups/lab/users?users=ada").status_code == 403
    assert bob.post("/groups/lab/users/remove", {"users": ["ada"]}).status_code == 403


@pytest.mark.parametrize(
    ("spelling", "role"),
    [("Read", Role.READ), ("write", Role.WRITE), ("ADMIN", Role.ADMIN)],
)
def test_roles_in_their_accepted_spellings(
    ada: Api, bob: Api, lab: Group, spelling: str, role: Role
) -> None:
    give(ada, "bob", spelling)
    assert Membership.objects.get(user__username="bob", group=lab).role is role
    assert bob.get("/users/groups").json()["groups"]["lab"] == role.value


def test_giving_a_role_again_changes_it(ada: Api, bob: Api, lab: Group) -> None:
    give(ada, "bob", "Admin")
    give(ada, "bob", "Read")
    assert ada.get("/groups/lab").json()["users_in_group"] == {"ada": "Admin", "bob": "Read"}


@pytest.mark.parametrize(
    ("relations", "status"),
    [
        ({}, 400),
        ({"nobody": "Read"}, 400),
        ({"bob": "Read", "nobody": "Read"}, 400),
        ({"a b": "Read"}, 400),
        ({"bob": "aDmin"}, 422),
        ({"bob": 2}, 422),
        ({"bob": None}, 422),
        ([], 422),
        (None, 422),
        ("bob", 422),
    ],
)
def test_bad_relations_change_nothing(
    ada: Api, bob: Api, lab: Group, relations: object, status: int
) -> None:
    assert ada.put("/groups/lab/users", {"relations": relations}).status_code == status
    assert Membership.objects.filter(group=lab).count() == 1


def test_removing_members_by_query_and_by_body(
    ada: Api, lab: Group, make_user: Callable[..., User]
) -> None:
    for name in ("bob", "eve", "mal"):
        make_user(name)
        give(ada, name, "Write")
    assert ada.delete("/groups/lab/users?users=bob&users=eve").status_code == 200
    assert ada.post("/groups/lab/users/remove", {"users": ["mal", "mal"]}).status_code == 200
    assert ada.get("/groups/lab").json()["users_in_group"] == {"ada": "Admin"}


def test_removing_nobody_or_strangers(ada: Api, bob: Api, lab: Group) -> None:
    assert ada.delete("/groups/lab/users").status_code == 400
    assert ada.delete("/groups/lab/users?users=nobody").status_code == 400
    assert ada.delete("/groups/lab/users?users=%00").status_code == 400
    assert ada.post("/groups/lab/users/remove", {"users": []}).status_code == 400
    assert ada.post("/groups/lab/users/remove", {"users": [1]}).status_code == 422
    assert ada.delete("/groups/lab/users?users=bob").status_code == 200  # was no member


def test_a_removed_member_is_a_stranger_at_once(ada: Api, bob: Api, lab: Group) -> None:
    give(ada, "bob", "Read")
    assert bob.get("/groups/lab").status_code == 200
    ada.delete("/groups/lab/users?users=bob")
    assert bob.get("/groups/lab").status_code == 404


@pytest.mark.parametrize("name", ["%00", "a%20b", "..", "%2e%2e", "x" * 3000, "%ED%A0%80"])
def test_odd_names_in_the_path_are_absent(ada: Api, name: str) -> None:
    assert ada.get(f"/groups/{name}").status_code == 404


def test_group_info_costs_few_queries(
    ada: Api, lab: Group, make_user: Callable[..., User], django_assert_max_num_queries: Callable
) -> None:
    for n in range(10):
        give(ada, make_user(f"user{n}").username, "Read")
    token = issue_user_token(User.objects.get(username="ada"))
    with django_assert_max_num_queries(4):
        Api(Client(), token).get("/groups/lab")
