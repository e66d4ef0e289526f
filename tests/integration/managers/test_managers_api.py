"""Managers over HTTP: bodies and statuses, consent, roles, and refusals that name a field."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.selectors import get_group
from accounts.services.groups import create_group, put_members
from managers import urls
from managers.models import NodeManager
from managers.policy import POLICY
from managers.services.scheduler import run_pass
from mitosis_protocol.enums import Role
from runners.models import Runner, RunnerLease
from tests.integration.accounts.api_client import Api
from tests.integration.managers.fleet import connect
from tests.integration.suites.campaign import make_suite, submit

pytestmark = pytest.mark.django_db(transaction=True)

METHODS = ("get", "post", "put", "patch", "delete")
REGISTRATION = {"tags": ["gpu", "linux"], "labels": ["rack:1"], "groups": []}


@pytest.fixture
def ada(as_user: Callable[..., Api]) -> Api:
    return as_user("ada")


@pytest.fixture
def bob(as_user: Callable[..., Api]) -> Api:
    return as_user("bob")


def register(api: Api, **members: Any) -> dict[str, Any]:
    response = api.post("/managers", {**REGISTRATION, **members})
    assert response.status_code == 201, response.content
    return response.json()


def share_group(name: str, **roles: Role) -> None:
    """A group of ada's with these members."""
    owner = User.objects.get(username="ada")
    group = create_group(actor=SYSTEM, creator=owner, name=name)
    if roles:
        put_members(actor=SYSTEM, group=group, roles=roles)


def test_every_route_has_exactly_one_policy_entry() -> None:
    routes = [
        (method.upper(), pattern.name)
        for pattern in urls.urlpatterns
        for method in METHODS
        if hasattr(pattern.callback.view_class, method)
    ]
    assert sorted(routes) == sorted(POLICY)


def test_registering_answers_uuid_tokens_and_the_websocket_url(ada: Api) -> None:
    answer = register(ada, lifetime="7d")
    assert answer["websocket_url"] == "ws://127.0.0.1:5000/ws/managers"
    assert answer["pending_groups"] == []
    manager = Api(Client(), answer["token"])
    assert manager.post("/managers/heartbeat", {"state": "Idle"}).status_code == 204
    shown = ada.get(f"/managers/{answer['manager_uuid']}").json()
    assert shown["tags"] == ["gpu", "linux"]
    assert shown["groups"] == {"ada": "Admin"}


def test_a_spoofed_host_does_not_reach_the_websocket_url(ada: Api) -> None:
    response = ada.call("POST", "/managers", REGISTRATION, host="evil.example")
    assert response.status_code == 400 or "evil" not in response.content.decode()


def test_only_members_may_offer_a_manager_to_a_group_and_its_admins_accept_it(
    ada: Api, bob: Api
) -> None:
    share_group("lab")
    for name in ("lab", "nowhere"):
        refused = bob.post("/managers", {**REGISTRATION, "groups": [name]})
        assert refused.status_code == 400
        assert "groups" in refused.json()["msg"]
    put_members(
        actor=SYSTEM,
        group=get_group("lab"),
        roles={"bob": Role.WRITE},
    )
    answer = register(bob, groups=["lab"])
    assert answer["pending_groups"] == ["lab"]
    path = f"/managers/{answer['manager_uuid']}"
    assert ada.get(path).status_code == 404, "out of reach until accepted"
    waiting = ada.get("/managers?consent=Pending").json()
    assert [one["uuid"] for one in waiting["managers"]] == [answer["manager_uuid"]]
    assert bob.post(f"{path}/groups/lab/consent", {"accept": True}).status_code == 403
    accepted = ada.post(f"{path}/groups/lab/consent", {"accept": True})
    assert accepted.json() == {"consent": "Accepted"}
    assert ada.get(path).status_code == 200
    ada.post(f"{path}/groups/lab/consent", {"accept": False})
    assert ada.get(path).status_code == 404


def test_only_admins_of_a_group_see_who_asks_to_serve_it(
    ada: Api, bob: Api, as_user: Callable[..., Api]
) -> None:
    carl = as_user("carl")
    share_group("lab", bob=Role.WRITE, carl=Role.WRITE)
    register(bob, groups=["lab"])
    assert ada.get("/managers?consent=Pending").json()["count"] == 1
    assert carl.get("/managers?consent=Pending").json()["count"] == 0
    assert carl.get("/managers").json()["count"] == 0


def test_the_registrants_own_admin_group_consents_at_once(ada: Api) -> None:
    share_group("lab")
    assert register(ada, groups=["lab:Admin"])["pending_groups"] == []


def test_consent_for_a_manager_that_never_asked_is_not_found(ada: Api, bob: Api) -> None:
    answer = register(bob)
    path = f"/managers/{answer['manager_uuid']}/groups/ada/consent"
    assert ada.post(path, {"accept": True}).status_code == 404


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"tags": "gpu"}, "tags"),
        ({"tags": [1]}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"tags": ["x" * 300]}, "tags"),
        ({"tags": [f"t{number}" for number in range(65)]}, "tags"),
        ({"labels": None}, "labels"),
        ({"groups": ["a:b:c"]}, "groups"),
        ({"groups": [7]}, "groups"),
        ({"lifetime": "soon"}, "lifetime"),
        ({"lifetime": "-1d"}, "lifetime"),
        ({"lifetime": "0s"}, "lifetime"),
        ({"lifetime": 5}, "lifetime"),
    ],
)
def test_a_bad_registration_is_refused_naming_the_field(
    ada: Api, members: dict[str, Any], field: str
) -> None:
    response = ada.post("/managers", {**REGISTRATION, **members})
    assert 400 <= response.status_code < 500
    assert field in response.json()["msg"]
    assert not NodeManager.objects.exists()


def test_a_lifetime_is_capped_at_thirty_days(ada: Api) -> None:
    register(ada, lifetime="10y")
    node = NodeManager.objects.get()
    assert node.refresh_expires_at is not None
    assert (node.refresh_expires_at - node.last_heartbeat).days <= 30


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"state": "Offline"}, "state"),
        ({"state": "Dancing"}, "state"),
        ({}, "state"),
        ({"state": "Idle", "session_epoch": -1}, "session_epoch"),
        ({"state": "Idle", "session_epoch": "1"}, "session_epoch"),
        ({"state": "Idle", "metrics": [1]}, "metrics"),
        ({"state": "Idle", "metrics": {"x": "y" * 70_000}}, "metrics"),
        ({"state": "Idle", "assigned_suite_uuid": "x"}, "assigned_suite_uuid"),
    ],
)
def test_a_bad_heartbeat_is_refused_naming_the_field(
    ada: Api, body: dict[str, Any], field: str
) -> None:
    manager = Api(Client(), register(ada)["token"])
    response = manager.post("/managers/heartbeat", body)
    assert 400 <= response.status_code < 500
    assert field in response.json()["msg"]


def test_a_heartbeat_needs_the_epoch_of_the_present_session(ada: Api) -> None:
    answer = register(ada)
    manager = Api(Client(), answer["token"])
    beat = {"state": "Executing", "metrics": {"active_workers": 3}, "session_epoch": 0}
    assert manager.post("/managers/heartbeat", beat).status_code == 204
    shown = ada.get(f"/managers/{answer['manager_uuid']}/metrics").json()
    assert shown["latest"] == {"active_workers": 3}
    Runner.objects.filter(uuid=answer["manager_uuid"]).update(session_epoch=4)
    RunnerLease.objects.update(session_epoch=4)
    assert manager.post("/managers/heartbeat", beat).status_code == 409
    assert manager.post("/managers/heartbeat", {**beat, "session_epoch": 4}).status_code == 204


def test_user_and_manager_tokens_do_not_pass_for_each_other(ada: Api) -> None:
    manager = Api(Client(), register(ada)["token"])
    assert manager.get("/managers").status_code == 401
    assert ada.post("/managers/heartbeat", {"state": "Idle"}).status_code == 401
    assert Api(Client()).post("/managers", REGISTRATION).status_code == 400


def test_listing_filters_and_pages(ada: Api) -> None:
    uuids = [
        register(ada, tags=["gpu", f"n{n}"], labels=[f"l{n}"])["manager_uuid"] for n in range(3)
    ]
    page = ada.get("/managers?tags=gpu&limit=2&offset=1").json()
    assert page["count"] == 3
    assert [one["uuid"] for one in page["managers"]] == [uuids[1], uuids[0]]
    assert ada.get("/managers?tags=gpu,n2").json()["count"] == 1
    assert ada.get("/managers?labels=l1").json()["count"] == 1
    assert ada.get("/managers?state=Idle").json()["count"] == 3
    assert ada.get("/managers?state=Executing,Cleanup").json()["count"] == 0
    assert ada.get("/managers?group_name=ada").json()["count"] == 3
    assert ada.get("/managers?group_name=elsewhere").json()["count"] == 0
    assert ada.get("/managers?creator_username=ada").json()["count"] == 3


@pytest.mark.parametrize(
    "query",
    ["state=Dancing", "limit=-1", "limit=9999", "offset=x", "tags=", "tags=a,,b", "consent=Maybe"],
)
def test_a_bad_query_is_refused_naming_the_parameter(ada: Api, query: str) -> None:
    response = ada.get(f"/managers?{query}")
    assert response.status_code == 400
    assert query.split("=", maxsplit=1)[0] in response.json()["msg"]


def test_a_manager_of_others_does_not_exist(ada: Api, bob: Api) -> None:
    one = register(bob)["manager_uuid"]
    none = uuid.uuid4()
    for method, path, body in (
        ("GET", "", None),
        ("GET", "/metrics", None),
        ("PUT", "/tags", {"tags": []}),
        ("PUT", "/groups", {"relations": {"ada": "Write"}}),
        ("POST", "/shutdown", {"op": "Force"}),
        ("POST", "/drain", {}),
        ("POST", "/revoke", {}),
    ):
        answers = [ada.call(method, f"/managers/{which}{path}", body) for which in (one, none)]
        assert [answer.status_code for answer in answers] == [404, 404]
        texts = [
            answer.json()["msg"].replace(str(which), "")
            for answer, which in zip(answers, (one, none), strict=True)
        ]
        assert texts[0] == texts[1]


def test_reading_is_not_administering(ada: Api, bob: Api) -> None:
    share_group("lab", bob=Role.READ)
    path = f"/managers/{register(ada, groups=['lab:Admin'])['manager_uuid']}"
    assert bob.get(path).status_code == 200
    assert bob.put(f"{path}/tags", {"tags": []}).status_code == 403
    assert bob.post(f"{path}/drain", {}).status_code == 403


def test_tags_labels_and_groups_change(ada: Api) -> None:
    share_group("lab")
    path = f"/managers/{register(ada)['manager_uuid']}"
    assert ada.put(f"{path}/tags", {"tags": ["b", "a", "a"]}).status_code == 204
    assert ada.put(f"{path}/labels", {"labels": []}).status_code == 204
    put = ada.put(f"{path}/groups", {"relations": {"lab": "Write"}})
    assert put.json() == {"consents": {"lab": "Accepted"}}
    shown = ada.get(path).json()
    assert (shown["tags"], shown["labels"]) == (["a", "b"], [])
    assert shown["groups"] == {"ada": "Admin", "lab": "Write"}
    assert ada.delete(f"{path}/groups?groups=lab").status_code == 204
    assert ada.get(path).json()["groups"] == {"ada": "Admin"}
    assert ada.delete(f"{path}/groups").status_code == 400
    assert ada.put(f"{path}/groups", {"relations": {}}).status_code == 422
    assert ada.put(f"{path}/groups", {"relations": {"lab": "Owner"}}).status_code == 422


def test_drain_quarantine_release_and_shutdown(ada: Api) -> None:
    path = f"/managers/{register(ada)['manager_uuid']}"
    assert ada.post(f"{path}/drain", {"reason": "new disk"}).json() == {"desired_state": "Draining"}
    shown = ada.get(path).json()
    assert (shown["desired_state"], shown["reason"]) == ("Draining", "new disk")
    assert ada.post(f"{path}/undrain", {}).json() == {"desired_state": "Active"}
    assert ada.post(f"{path}/release", {}).status_code == 409
    assert ada.post(f"{path}/quarantine", {}).json() == {"desired_state": "Quarantined"}
    assert ada.post(f"{path}/undrain", {}).status_code == 409
    assert ada.post(f"{path}/release", {}).json() == {"desired_state": "Active"}
    assert ada.post(f"{path}/shutdown", {"op": "Gently"}).status_code == 422
    assert ada.post(f"{path}/shutdown", {"op": "Graceful"}).json() == {"state": "ShuttingDown"}
    assert ada.post(f"{path}/drain", {}).status_code == 409
    assert ada.post(f"{path}/shutdown", {"op": "Force"}).json() == {"state": "ShuttingDown"}


def test_a_revoked_manager_is_gone_at_once(ada: Api) -> None:
    answer = register(ada)
    path = f"/managers/{answer['manager_uuid']}"
    manager = Api(Client(), answer["token"])
    assert ada.post(f"{path}/revoke", {}).status_code == 204
    assert manager.post("/managers/heartbeat", {"state": "Idle"}).status_code == 401
    assert ada.get(path).status_code == 404
    refresh = Api(Client()).post(
        f"{path}/refresh-token", {"refresh_token": answer["refresh_token"]}
    )
    assert refresh.status_code == 401


def test_an_engaged_manager_shows_its_suite(ada: Api) -> None:
    answer = register(ada)
    suite = make_suite(User.objects.get(username="ada"))
    submit(suite)
    connect(*Runner.objects.all())
    run_pass()
    [shown] = ada.get("/managers").json()["managers"]
    assert shown["assigned_suite_uuid"] == str(suite.uuid)
    assert shown["lease_expires_at"] is not None
    assert shown["uuid"] == answer["manager_uuid"]
