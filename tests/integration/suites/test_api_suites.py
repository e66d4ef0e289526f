"""Suites over HTTP: making, listing, showing, changing and removing them, and who may."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from accounts.actors import SYSTEM
from accounts.models import AuditEntry, Group
from managers.services.config import change_config
from mitosis_protocol.enums import GroupState
from suites.models import TaskSuite
from tests.integration.suites.suite_world import make, ok, refused, spec, submit
from tests.integration.workers.people import Caller

pytestmark = pytest.mark.django_db

RFC_BODY: dict[str, Any] = {
    "name": "ML Training Campaign",
    "description": "ResNet50 hyperparameter sweep",
    "group_name": "ada",
    "tags": ["gpu", "linux", "cuda:11.8"],
    "labels": ["project:resnet", "phase:training"],
    "priority": 10,
    "worker_schedule": {
        "worker_count": 16,
        "cpu_binding": {"cores": [0, 1, 2, 3], "strategy": "RoundRobin"},
        "task_prefetch_count": 32,
    },
    "env_preparation": {
        "args": ["./setup.sh", "--download-dataset"],
        "envs": {"DATA_DIR": "/mnt/data"},
        "resources": [
            {"remote_file": {"Attachment": {"key": "setup.sh"}}, "local_path": "setup.sh"}
        ],
        "timeout": "5m",
    },
    "env_cleanup": {"args": ["./cleanup.sh"], "envs": {}, "resources": [], "timeout": "2m"},
}


def test_phase_2_create_suite_answers_as_the_rfc_shows(ada: Caller) -> None:
    made = ok(ada.call("POST", "/suites", RFC_BODY), 201)
    assert made.keys() == {"uuid", "state", "assigned_managers"}
    assert (made["state"], made["assigned_managers"]) == ("Open", [])
    assert UUID(made["uuid"]).version == 4
    assert AuditEntry.objects.filter(action="suite.create", object=made["uuid"]).exists()


def test_phase_2_get_suite_details_shows_all_of_it(ada: Caller) -> None:
    made = ok(ada.call("POST", "/suites", RFC_BODY), 201)
    shown = ok(ada.call("GET", f"/suites/{made['uuid']}"))
    for member in ("name", "description", "group_name", "priority"):
        assert shown[member] == RFC_BODY[member]
    assert shown["env_preparation"] == RFC_BODY["env_preparation"]
    assert shown["env_cleanup"] == RFC_BODY["env_cleanup"]
    schedule = shown["worker_schedule"]
    assert schedule["worker_count"] == 16
    assert schedule["cpu_binding"]["cores"] == [0, 1, 2, 3]
    assert set(shown["tags"]) == set(RFC_BODY["tags"])
    assert shown["creator_username"] == "ada"
    assert (shown["total_tasks"], shown["pending_tasks"]) == (0, 0)
    assert (shown["completed_at"], shown["last_task_submitted_at"]) == (None, None)
    assert shown["created_at"].endswith("Z")
    assert "T" in shown["created_at"]
    assert shown["active_managers"] == []


def test_phase_2_query_suites_filters_by_group_labels_and_state(ada: Caller, lab: Group) -> None:
    first = make(ada, labels=["project:resnet", "x"], name="ResNet sweep", tags=["gpu"])
    make(ada, "lab", labels=["project:bert"])
    found = ok(ada.call("GET", "/suites?group_name=ada&labels=project:resnet&state=Open&tags=gpu"))
    assert found["count"] == 1
    [row] = found["suites"]
    assert row["uuid"] == str(first.uuid)
    expected = {"name", "group_name", "tags", "labels", "state", "priority", "total_tasks"}
    assert expected | {"pending_tasks", "created_at", "updated_at"} <= row.keys()


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 3),
        ("?name=SWEEP", 2),
        ("?name=100%25", 1),
        ("?name=_", 0),
        ("?labels=a,b", 1),
        ("?labels=a&labels=b", 1),
        ("?labels=a", 2),
        ("?state=Closed", 0),
        ("?state=Open,Closed", 3),
        ("?group_name=nobody", 0),
        ("?tags=nope", 0),
    ],
)
def test_filters_hold_together(ada: Caller, query: str, count: int) -> None:
    make(ada, name="Sweep one", labels=["a", "b"])
    make(ada, name="sweep 100% two", labels=["a"])
    make(ada)
    found = ok(ada.call("GET", f"/suites{query}"))
    assert (found["count"], len(found["suites"])) == (count, count)


def test_lists_page_newest_first_and_count_all(ada: Caller) -> None:
    made = [str(make(ada, name=str(n)).uuid) for n in range(5)]
    page = ok(ada.call("GET", "/suites?limit=2&offset=1"))
    assert [row["uuid"] for row in page["suites"]] == [made[3], made[2]]
    assert (page["count"], page["limit"], page["offset"]) == (5, 2, 1)


def test_a_list_costs_the_same_queries_for_one_suite_and_for_many(
    ada: Caller, django_assert_max_num_queries: Any
) -> None:
    for n in range(12):
        make(ada, name=str(n))
    with django_assert_max_num_queries(6):
        assert len(ok(ada.call("GET", "/suites"))["suites"]) == 12


def test_the_query_route_takes_the_same_filter_as_a_body(ada: Caller) -> None:
    suite = make(ada, name="one", labels=["a"])
    make(ada, name="two")
    body = {"labels": ["a"], "states": ["Open"], "name": "ON", "limit": 10, "offset": 0}
    found = ok(ada.call("POST", "/suites/query", body))
    assert [row["uuid"] for row in found["suites"]] == [str(suite.uuid)]
    assert ok(ada.call("POST", "/suites/query", {}))["count"] == 2
    refused(ada.call("POST", "/suites/query", {"states": ["Nope"]}), 422, "states")
    refused(ada.call("POST", "/suites/query", {"limit": -1}), 422, "limit")


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("state=Nope", "state"),
        ("limit=-1", "limit"),
        ("limit=99999999999", "limit"),
        ("offset=x", "offset"),
        ("labels=", "labels"),
        ("tags=a%00b", "tags"),
        ("name=a%00b", "name"),
        ("group_name=a%00b", "group_name"),
    ],
)
def test_a_wrong_parameter_is_named(ada: Caller, query: str, word: str) -> None:
    refused(ada.call("GET", f"/suites?{query}"), 400, word)


def test_patch_changes_what_may_change_and_nothing_else(ada: Caller) -> None:
    suite = make(ada, name="old", description="d", labels=["a"], tags=["gpu"])
    path = f"/suites/{suite.uuid}"
    shown = ok(ada.call("PATCH", path, {"name": "new", "labels": ["b"], "priority": 7}))
    assert (shown["name"], shown["labels"], shown["priority"]) == ("new", ["b"], 7)
    assert (shown["description"], shown["tags"]) == ("d", ["gpu"])
    assert ok(ada.call("PATCH", path, {"description": None}))["description"] is None
    for body, word in [
        ({"tags": ["x"]}, "tags"),
        ({"state": "Closed"}, "state"),
        ({}, "nothing"),
        ({"priority": "x"}, "priority"),
        ({"labels": [""]}, "labels"),
    ]:
        refused(ada.call("PATCH", path, body), 400, word)


def test_delete_takes_only_a_suite_that_never_had_a_task(ada: Caller) -> None:
    empty, used = make(ada), make(ada)
    submit(ada, used)
    assert ada.call("DELETE", f"/suites/{empty.uuid}").status_code == 204
    refused(ada.call("GET", f"/suites/{empty.uuid}"), 404)
    body = refused(ada.call("DELETE", f"/suites/{used.uuid}"), 409, "tasks")
    assert body["code"] == "suite.not_empty"
    assert ada.call("GET", f"/suites/{used.uuid}").status_code == 200


def test_scale_changes_the_plan_and_the_cap(ada: Caller) -> None:
    suite = make(ada)
    path = f"/suites/{suite.uuid}/scale"
    shown = ok(ada.call("PUT", path, {"worker_schedule": {"worker_count": 9}, "max_running": 3}))
    assert (shown["worker_schedule"]["worker_count"], shown["max_running"]) == (9, 3)
    assert ok(ada.call("PUT", path, {"max_running": None}))["max_running"] is None
    refused(ada.call("PUT", path, {"max_running": 0}), 400, "max_running")
    refused(ada.call("PUT", path, {"worker_schedule": {"worker_count": 0}}), 400, "worker_count")
    refused(ada.call("PUT", path, {"workers": 3}), 400, "workers")


def test_suites_switched_off_refuse_new_ones_with_a_reason(ada: Caller) -> None:
    change_config(actor=SYSTEM, changes={"suites_enabled": False}, lease_ttl_s=120)
    body = refused(ada.call("POST", "/suites", spec()), 409, "switched off")
    assert body["code"] == "suite.disabled"


def test_a_locked_group_makes_no_suites(ada: Caller, lab: Group) -> None:
    Group.objects.filter(pk=lab.pk).update(state=GroupState.LOCKED)
    refused(ada.call("POST", "/suites", spec("lab")), 403, "group_name")


CALLS = [
    ("GET", "", None),
    ("PATCH", "", {"name": "x"}),
    ("DELETE", "", None),
    ("POST", "/cancel", {}),
    ("POST", "/close", None),
    ("POST", "/reopen", None),
    ("POST", "/pause", None),
    ("POST", "/resume", None),
    ("POST", "/rerun", {}),
    ("PUT", "/scale", {"max_running": 1}),
    ("POST", "/managers/refresh", None),
    ("POST", "/managers", {"manager_uuids": [str(uuid4())]}),
    ("DELETE", "/managers", {"manager_uuids": [str(uuid4())]}),
]


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0] + call[1])
def test_phase_2_permission_checks_by_group_role(
    ada: Caller, ron: Caller, eve: Caller, call: tuple[str, str, Any]
) -> None:
    """A stranger cannot tell a foreign suite from none; a reader may read and no more."""
    method, path, body = call
    suite = make(ada, "lab")
    foreign = eve.call(method, f"/suites/{suite.uuid}{path}", body)
    nowhere = uuid4()
    absent = eve.call(method, f"/suites/{nowhere}{path}", body)
    assert foreign.status_code == absent.status_code == 404
    same = foreign.content.replace(str(suite.uuid).encode(), str(nowhere).encode())
    assert same == absent.content
    assert Caller().call(method, f"/suites/{suite.uuid}{path}", body).status_code in {400, 401}
    expected = 200 if method == "GET" else 403
    assert ron.call(method, f"/suites/{suite.uuid}{path}", body).status_code == expected
    assert TaskSuite.objects.filter(pk=suite.pk, paused_at__isnull=True, state=0).exists()


def test_phase_2_permission_checks_making_suites_needs_write(
    ron: Caller, bob: Caller, eve: Caller, lab: Group
) -> None:
    assert ron.call("POST", "/suites", spec("lab")).status_code == 403
    foreign = refused(eve.call("POST", "/suites", spec("lab")), 404)
    absent = refused(eve.call("POST", "/suites", spec("lax")), 404)
    assert foreign["msg"].replace("lab", "lax") == absent["msg"]
    assert bob.call("POST", "/suites", spec("lab")).status_code == 201


def test_lists_show_suites_of_ones_own_groups_only(
    ada: Caller, ron: Caller, eve: Caller, lab: Group
) -> None:
    make(ada, "lab", name="shared")
    make(ada, "ada", name="private")
    assert [row["name"] for row in ok(ron.call("GET", "/suites"))["suites"]] == ["shared"]
    assert ok(eve.call("GET", "/suites"))["count"] == 0
    assert ok(eve.call("GET", "/suites?group_name=lab"))["count"] == 0
