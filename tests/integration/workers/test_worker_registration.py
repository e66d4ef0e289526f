"""Registering and looking at workers over HTTP, as users do."""

import re
import uuid
from datetime import timedelta
from typing import Any

import pytest

from accounts.bearer import read_claims
from accounts.models import AuditEntry, Membership
from core import clock
from mitosis_protocol.enums import ConsentState, Role, RunnerKind, TokenKind
from runners.models import GroupRunner, Runner, RunnerLease
from tests.integration.workers.people import Caller, new_group

pytestmark = pytest.mark.django_db

LEGACY_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,6} \+00:00:00")


def consent_of(worker_id: str) -> dict[str, tuple[Role, ConsentState]]:
    rows = GroupRunner.objects.filter(runner__uuid=worker_id)
    return {row.group.name: (row.role, row.consent) for row in rows.select_related("group")}


def lifetime_of(token: str) -> timedelta:
    return read_claims(f"Bearer {token}", TokenKind.WORKER).expires_at - clock.now()


def test_a_registered_worker_gets_an_id_a_token_and_no_redis(ada: Caller):
    answer = ada.register(tags=["gpu", "gpu"], labels=["rack-1"])
    assert uuid.UUID(answer["worker_id"]).version == 4
    assert answer["redis_url"] is None
    assert ":" not in answer["token"]
    assert "\n" not in answer["token"]
    runner = Runner.objects.get(uuid=answer["worker_id"])
    assert (runner.tags, runner.labels, runner.kind) == (
        ["gpu"],
        ["rack-1"],
        RunnerKind.INDEPENDENT,
    )
    assert AuditEntry.objects.filter(action="runner.create", object=str(runner.uuid)).exists()


def test_the_creators_own_group_is_always_admin(ada: Caller):
    for groups in ([], ["ada:read"], ["ada"]):
        answer = ada.register(groups=groups)
        assert consent_of(answer["worker_id"]) == {"ada": (Role.ADMIN, ConsentState.ACCEPTED)}


@pytest.mark.parametrize(
    ("asked", "role"),
    [
        ("lab", Role.WRITE),
        ("lab:admin", Role.ADMIN),
        ("lab:READ", Role.READ),
        ("lab:king", Role.WRITE),
    ],
)
def test_a_group_may_be_named_with_a_role(ada: Caller, asked: str, role: Role):
    new_group("lab", ada.user)
    answer = ada.register(groups=[asked])
    assert consent_of(answer["worker_id"])["lab"] == (role, ConsentState.ACCEPTED)
    assert answer["pending_groups"] == []


def test_unknown_and_malformed_groups_are_dropped(ada: Caller):
    answer = ada.register(groups=["nowhere", "a:b:c", "", "no such name", ":admin"])
    assert set(consent_of(answer["worker_id"])) == {"ada"}


@pytest.mark.parametrize("role", [None, Role.READ, Role.WRITE])
def test_a_group_waits_for_its_admin_unless_the_caller_is_one(
    ada: Caller, bob: Caller, role: Role | None
):
    new_group("lab", bob.user, **({} if role is None else {"ada": role}))
    answer = ada.register(groups=["lab:write"])
    assert consent_of(answer["worker_id"])["lab"] == (Role.WRITE, ConsentState.PENDING)
    assert answer["pending_groups"] == ["lab"]
    seen = ada.call("GET", f"/workers/{answer['worker_id']}").json()
    assert seen["groups"] == {"ada": "Admin"}
    assert seen["pending_groups"] == {"lab": "Write"}


def test_an_admin_finds_and_accepts_a_worker_that_wants_in(ada: Caller, bob: Caller):
    new_group("lab", bob.user)
    worker_id = ada.register(groups=["lab"])["worker_id"]
    assert bob.call("GET", f"/workers/{worker_id}").status_code == 404
    query = {"group_name": "lab", "count": False, "consent": "Pending"}
    [found] = bob.call("POST", "/workers/query", query).json()["workers"]
    assert found["worker_id"] == worker_id
    path = f"/workers/{worker_id}/groups/lab/consent"
    assert bob.call("POST", path, {"accept": True}).json() == {"consent": "Accepted"}
    assert bob.call("GET", f"/workers/{worker_id}").json()["groups"]["lab"] == "Write"
    assert bob.call("POST", path, {"accept": False}).json() == {"consent": "Refused"}
    assert bob.call("GET", f"/workers/{worker_id}").status_code == 404


def test_only_an_admin_of_the_group_may_answer(ada: Caller, bob: Caller, eve: Caller):
    new_group("lab", bob.user, eve=Role.WRITE)
    worker_id = ada.register(groups=["lab"])["worker_id"]
    path = f"/workers/{worker_id}/groups/lab/consent"
    assert eve.call("POST", path, {"accept": True}).status_code == 403
    assert ada.call("POST", path, {"accept": True}).status_code == 404
    query = {"group_name": "lab", "count": False, "consent": "Pending"}
    assert eve.call("POST", "/workers/query", query).status_code == 403


def test_a_worker_that_never_asked_is_as_absent_as_none(ada: Caller, bob: Caller):
    new_group("lab", bob.user)
    worker_id = ada.register()["worker_id"]
    answers = [
        bob.call("POST", f"/workers/{who}/groups/lab/consent", {"accept": True})
        for who in (worker_id, "3f2d3c0e-6a64-4f40-9d0e-1f6e5b0a1c2d")
    ]
    assert [answer.status_code for answer in answers] == [404, 404]
    texts = [re.sub(r"[0-9a-f-]{36}", "U", answer.json()["msg"]) for answer in answers]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("lifetime", "days"), [(None, 7), ("1d", 1), ("30days", 30), ("1y", 30), ("60d", 30)]
)
def test_a_tokens_lifetime_is_capped(ada: Caller, lifetime: str | None, days: int):
    body = {} if lifetime is None else {"lifetime": lifetime}
    left = lifetime_of(ada.register(**body)["token"])
    assert abs(left - timedelta(days=days)) < timedelta(minutes=1)


@pytest.mark.parametrize("lifetime", ["-5s", "0s", "5", "soon", ""])
def test_a_lifetime_that_is_none_is_refused(ada: Caller, lifetime: str):
    body = {"tags": [], "labels": [], "groups": [], "lifetime": lifetime}
    assert ada.call("POST", "/workers", body).status_code == 400
    assert not Runner.objects.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"tags": "gpu"},
        {"tags": [1]},
        {"tags": [""]},
        {"tags": ["x" * 257]},
        {"tags": [f"t{n}" for n in range(65)]},
        {"labels": None},
        {"groups": {"lab": "Write"}},
        {"lifetime": 5},
        {"kind": "manager"},
    ],
)
def test_a_body_of_the_wrong_shape_is_refused(ada: Caller, change: dict[str, Any]):
    body = {"tags": [], "labels": [], "groups": [], **change}
    assert ada.call("POST", "/workers", body).status_code == 422
    assert not Runner.objects.exists()


def test_all_three_sets_are_needed(ada: Caller):
    assert ada.call("POST", "/workers", {"tags": [], "labels": []}).status_code == 422


def test_an_existing_worker_counts_for_ten_minutes_and_ours_for_two(ada: Caller):
    body = {"tags": [], "labels": [], "groups": []}
    for headers, seconds in (({}, 600), ({"mitosis-worker": "1"}, 120)):
        worker_id = ada.call("POST", "/workers", body, **headers).json()["worker_id"]
        lease = RunnerLease.objects.get(runner__uuid=worker_id)
        assert abs(lease.expires_at - clock.now() - timedelta(seconds=seconds)) < timedelta(
            seconds=5
        )


def test_a_direct_worker_gets_a_token_of_its_own_kind(ada: Caller):
    answer = ada.register(kind="direct")
    claims = read_claims(f"Bearer {answer['token']}", TokenKind.DIRECT)
    assert claims.subject == answer["worker_id"]
    assert ada.call("GET", f"/workers/{answer['worker_id']}").json()["info"]["kind"] == "Direct"


def test_a_worker_reads_as_existing_clients_expect(ada: Caller):
    worker_id = ada.register(tags=["b", "a"], labels=["x"])["worker_id"]
    info = ada.call("GET", f"/workers/{worker_id}").json()["info"]
    assert info["creator_username"] == "ada"
    assert (info["tags"], info["labels"]) == (["a", "b"], ["x"])
    assert (info["state"], info["assigned_task_id"]) == ("Normal", None)
    for name in ("created_at", "updated_at", "last_heartbeat"):
        assert LEGACY_TIME.fullmatch(info[name]), info[name]


def test_a_worker_is_absent_for_strangers(ada: Caller, eve: Caller):
    worker_id = ada.register()["worker_id"]
    foreign = eve.call("GET", f"/workers/{worker_id}")
    absent = eve.call("GET", "/workers/3f2d3c0e-6a64-4f40-9d0e-1f6e5b0a1c2d")
    assert (foreign.status_code, absent.status_code) == (404, 404)
    assert foreign.json()["msg"].replace(worker_id, "U") == "Worker U not found"


def test_a_path_that_is_no_uuid_is_a_bad_request(ada: Caller):
    assert ada.call("GET", "/workers/not-a-uuid").status_code == 400


def test_workers_of_a_group_are_listed_and_counted(ada: Caller, bob: Caller):
    new_group("lab", ada.user, bob=Role.READ)
    first = ada.register(tags=["gpu", "big"], labels=["rack-1"], groups=["lab:read"])["worker_id"]
    second = ada.register(tags=["gpu"], labels=["rack-2"], groups=["lab:admin"])["worker_id"]
    ada.register(tags=["gpu"])

    def found(**query: Any) -> list[str]:
        body = {"group_name": "lab", "count": False, **query}
        answer = bob.call("POST", "/workers/query", body).json()
        assert answer["group_name"] == "lab"
        assert answer["count"] == len(answer["workers"])
        return [worker["worker_id"] for worker in answer["workers"]]

    assert found() == [first, second]
    assert found(tags=["gpu", "big"]) == [first]
    assert found(labels=["rack-2"]) == [second]
    assert found(role=["Read", "Write"]) == [first]
    assert found(creator_username="ada") == [first, second]
    assert found(creator_username="bob") == []
    assert found(creator_username=None, role=None, tags=None) == [first, second]
    counted = bob.call("POST", "/workers/query", {"group_name": "lab", "count": True}).json()
    assert counted == {"count": 2, "workers": [], "group_name": "lab"}


def test_the_callers_own_group_is_the_default(ada: Caller):
    worker_id = ada.register()["worker_id"]
    answer = ada.call("POST", "/workers/query", {"count": False}).json()
    assert answer["group_name"] == "ada"
    assert [worker["worker_id"] for worker in answer["workers"]] == [worker_id]


def test_a_list_costs_the_same_for_many_workers(ada: Caller, django_assert_max_num_queries):
    for _ in range(5):
        ada.register()
    with django_assert_max_num_queries(6):
        ada.call("POST", "/workers/query", {"count": False})


@pytest.mark.parametrize("group", ["lab", "nowhere", "a b"])
def test_a_group_without_the_caller_is_forbidden(ada: Caller, eve: Caller, group: str):
    new_group("lab", ada.user)
    answer = eve.call("POST", "/workers/query", {"group_name": group, "count": False})
    assert answer.status_code == 403


@pytest.mark.parametrize("empty", ["tags", "labels", "role"])
def test_an_empty_set_asks_for_nothing_and_is_refused(ada: Caller, empty: str):
    assert ada.call("POST", "/workers/query", {"count": False, empty: []}).status_code == 400


def test_count_has_to_be_given(ada: Caller):
    assert ada.call("POST", "/workers/query", {}).status_code == 422


def test_leaving_the_group_takes_the_worker_out_of_reach(ada: Caller, bob: Caller):
    new_group("lab", ada.user, bob=Role.READ)
    worker_id = ada.register(groups=["lab"])["worker_id"]
    assert bob.call("GET", f"/workers/{worker_id}").status_code == 200
    Membership.objects.filter(user=bob.user, group__name="lab").delete()
    assert bob.call("GET", f"/workers/{worker_id}").status_code == 404


def test_registration_needs_a_users_token(ada: Caller):
    token = ada.register()["token"]
    body = {"tags": [], "labels": [], "groups": []}
    assert Caller().call("POST", "/workers", body).status_code == 400
    assert Caller(token).call("POST", "/workers", body).status_code == 401
