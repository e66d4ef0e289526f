"""One task over HTTP: read, change, relabel, cancel, and who may do it."""

import re
from uuid import uuid4

import pytest

from accounts.models import AuditEntry, Group
from mitosis_protocol.enums import TaskResultMessage
from tasks.models import ActiveTask, ArchivedTask
from tests.integration.tasks.api_world import Caller, TeamWorker, ok, refused, submit

pytestmark = pytest.mark.django_db

LEGACY_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{1,9} \+00:00:00")
INFO = {
    *("uuid", "creator_username", "group_name", "task_id", "tags", "labels", "created_at"),
    *("updated_at", "state", "timeout", "priority", "spec", "result", "upstream_task_uuid"),
    *("downstream_task_uuid", "reporter_uuid"),
    *(
        "outcome",
        "reason",
        "suite_uuid",
        "rerun_of",
        "attempt",
        "failures",
        "cancelling",
        "middleware",
    ),
}


def info_of(caller: Caller, uuid: object) -> dict[str, object]:
    answer = ok(caller.call("GET", f"/tasks/{uuid}"))
    return answer["info"]


def test_a_waiting_task_reads_as_existing_clients_expect(ada: Caller) -> None:
    made = submit(ada, tags=["b", "a", "b"], labels=["x"], timeout="1m 30s", priority=-2)
    info = info_of(ada, made)
    assert info.keys() == INFO
    assert LEGACY_TIME.fullmatch(str(info["created_at"]))
    assert LEGACY_TIME.fullmatch(str(info["updated_at"]))
    assert info["tags"] == ["a", "b"]
    assert (info["state"], info["timeout"], info["priority"]) == ("Ready", 90, -2)
    assert info["result"] is info["reporter_uuid"] is info["outcome"] is None
    assert (info["creator_username"], info["group_name"]) == ("ada", "ada")


def test_states_on_the_wire_are_the_existing_ones(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada)
    claimed = worker.claim()
    assert info_of(ada, made)["state"] == "Running"
    worker.finish(claimed)
    assert info_of(ada, made)["state"] == "Finished"
    worker.commit(claimed, exit_status=256)
    info = info_of(ada, made)
    assert (info["state"], info["outcome"]) == ("Finished", "failed")
    assert info["result"] == {"exit_status": 256, "msg": None}
    assert info["reporter_uuid"] == str(worker.uuid)


def test_a_timed_out_task_is_cancelled_on_the_wire(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada)
    claimed = worker.claim()
    worker.finish(claimed, cancelled=True)
    assert info_of(ada, made)["state"] == "Cancelled"
    worker.commit(claimed, 15, TaskResultMessage.EXEC_TIMEOUT)
    info = info_of(ada, made)
    assert (info["state"], info["outcome"]) == ("Cancelled", "timeout")
    assert info["result"] == {"exit_status": 15, "msg": "ExecTimeout"}


def test_a_waiting_task_can_be_changed(ada: Caller) -> None:
    made = submit(ada)
    body = {"tags": ["gpu"], "timeout": "2h", "priority": 7, "task_spec": {"args": ["false"]}}
    ok(ada.call("PUT", f"/tasks/{made}", body))
    info = info_of(ada, made)
    assert (info["tags"], info["timeout"], info["priority"]) == (["gpu"], 7200, 7)
    assert info["spec"]["args"] == ["false"]
    # What the existing Python client sends: no `timeout` key at all.
    ok(ada.call("PUT", f"/tasks/{made}", {"priority": 1}))
    ok(ada.call("PUT", f"/tasks/{made}", {"priority": 2, "timeout": None, "tags": None}))
    assert info_of(ada, made)["priority"] == 2


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({}, 400, "change"),
        ({"priority": "1"}, 422, "priority"),
        ({"timeout": "-1s"}, 400, "timeout"),
        ({"tags": [""]}, 400, "tags"),
        ({"task_spec": {}}, 422, "args"),
        ([], 422, ""),
    ],
)
def test_a_bad_change_changes_nothing(ada: Caller, body: object, status: int, word: str) -> None:
    made = submit(ada)
    before = ActiveTask.objects.values().get(uuid=made)
    refused(ada.call("PUT", f"/tasks/{made}", body), status, word)
    assert ActiveTask.objects.values().get(uuid=made) == before


def test_only_ready_tasks_can_be_changed(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada)
    claimed = worker.claim()
    refused(ada.call("PUT", f"/tasks/{made}", {"priority": 1}), 404)
    worker.commit(claimed)
    refused(ada.call("PUT", f"/tasks/{made}", {"priority": 1}), 404)


def test_labels_change_in_any_state(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada, labels=["old"])
    ok(ada.call("PUT", f"/tasks/{made}/labels", {"labels": ["b", "a", "a"]}))
    assert info_of(ada, made)["labels"] == ["a", "b"]
    worker.run()
    ok(ada.call("PUT", f"/tasks/{made}/labels", {"labels": []}))
    assert info_of(ada, made)["labels"] == []
    refused(ada.call("PUT", f"/tasks/{made}/labels", {"labels": [""]}), 422, "labels")
    refused(ada.call("PUT", f"/tasks/{made}/labels", {}), 422, "labels")


def test_a_waiting_task_is_cancelled_at_once(ada: Caller) -> None:
    made = submit(ada)
    assert ada.call("DELETE", f"/tasks/{made}").status_code == 200
    info = info_of(ada, made)
    assert (info["state"], info["outcome"]) == ("Cancelled", "cancelled")
    assert info["result"] == {"exit_status": 0, "msg": "UserCancellation"}
    refused(ada.call("DELETE", f"/tasks/{made}"), 404)
    assert AuditEntry.objects.filter(action="task.cancel", object=str(made)).exists()


def test_a_running_task_is_told_to_stop(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada)
    claimed = worker.claim()
    assert ada.call("DELETE", f"/tasks/{made}").status_code == 200
    info = info_of(ada, made)
    assert (info["state"], info["cancelling"]) == ("Running", True)
    worker.commit(claimed, exit_status=0)  # whatever it reports, the decision stands
    info = info_of(ada, made)
    assert (info["outcome"], info["result"]["msg"]) == ("cancelled", "UserCancellation")


def test_roles_of_the_group_decide(
    ada: Caller, bob: Caller, ron: Caller, eve: Caller, lab_group: Group
) -> None:
    made = submit(ada, group="lab")
    ok(ron.call("GET", f"/tasks/{made}"))
    refused(ron.call("PUT", f"/tasks/{made}", {"priority": 1}), 403)
    refused(ron.call("PUT", f"/tasks/{made}/labels", {"labels": []}), 403)
    refused(ron.call("DELETE", f"/tasks/{made}"), 403)
    ok(bob.call("PUT", f"/tasks/{made}", {"priority": 1}))
    assert bob.call("DELETE", f"/tasks/{made}").status_code == 200


@pytest.mark.parametrize(
    ("method", "suffix", "body"),
    [
        ("GET", "", None),
        ("PUT", "", {"priority": 1}),
        ("PUT", "", {"nonsense": 1}),
        ("DELETE", "", None),
        ("PUT", "/labels", {"labels": ["x"]}),
        ("POST", "/artifacts", {"content_type": "result", "content_length": 1}),
        ("GET", "/download/artifacts/result", None),
        ("DELETE", "/artifacts/result", None),
        ("GET", "/logs?stream=stdout", None),
    ],
)
def test_a_foreign_task_looks_exactly_like_none(
    ada: Caller,
    eve: Caller,
    lab_group: Group,
    method: str,
    suffix: str,
    body: object,
) -> None:
    foreign, nothing = submit(ada, group="lab"), uuid4()
    first = refused(eve.call(method, f"/tasks/{foreign}{suffix}", body), 404)
    second = refused(eve.call(method, f"/tasks/{nothing}{suffix}", body), 404)
    assert {k: str(v).replace(str(foreign), str(nothing)) for k, v in first.items()} == {
        k: str(v) for k, v in second.items()
    }


def test_admins_have_no_implicit_rights(ada: Caller, root: Caller) -> None:
    made = submit(ada)
    refused(root.call("GET", f"/tasks/{made}"), 404)
    refused(root.call("DELETE", f"/tasks/{made}"), 404)


def test_an_archived_task_is_found_after_it_moved(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada)
    worker.run()
    assert ArchivedTask.objects.filter(uuid=made).exists()
    assert info_of(ada, made)["outcome"] == "succeeded"


def test_methods_and_paths_that_do_not_exist(ada: Caller) -> None:
    refused(ada.call("POST", f"/tasks/{uuid4()}", {}), 405)
    assert ada.call("GET", "/tasks/not-a-uuid").status_code == 404
    assert ada.call("GET", "/tasks/").status_code == 404
    refused(Caller().call("GET", f"/tasks/{uuid4()}"), 400, "Authorization")
    refused(Caller("nonsense").call("GET", f"/tasks/{uuid4()}"), 401)
