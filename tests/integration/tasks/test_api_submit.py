"""Submitting over HTTP: what existing clients send, what we add, and everything wrong with it."""

import json
import time
from uuid import UUID, uuid4

import pytest
from django.test import Client

from accounts.models import AuditEntry, Group
from mitosis_protocol.enums import GroupState, Outcome
from tasks.models import ActiveTask, ArchivedTask, Submission, TaskDependency
from tests.integration.tasks.api_world import (
    Caller,
    TeamWorker,
    allowed_s,
    ok,
    refused,
    submit,
    task,
)

pytestmark = pytest.mark.django_db


def test_a_task_gets_a_uuid_and_the_groups_next_number(ada: Caller) -> None:
    first = ok(ada.call("POST", "/tasks", task(priority=3, labels=["x"], tags=["gpu"])))
    second = ok(ada.call("POST", "/tasks", task()))
    assert (first["task_id"], second["task_id"]) == (1, 2)
    assert UUID(first["uuid"]).version == 4
    row = ActiveTask.objects.get(uuid=first["uuid"])
    assert (row.priority, row.labels, row.tags, row.timeout_s) == (3, ["x"], ["gpu"], 600)
    assert AuditEntry.objects.filter(action="task.submit", object=first["uuid"]).exists()


def test_unknown_members_are_ignored(ada: Caller) -> None:
    ok(ada.call("POST", "/tasks", {**task(), "whatever": [1, 2]}))


def test_all_of_a_spec_is_stored_as_it_came(ada: Caller) -> None:
    other = submit(ada)
    spec = {
        "args": ["python", "x.py"],
        "envs": {"A": "1"},
        "resources": [
            {"remote_file": {"Attachment": {"key": "data/a b.csv"}}, "local_path": "in/a.csv"},
            {
                "remote_file": {"Artifact": {"uuid": str(other), "content_type": "result"}},
                "local_path": "r.tar.gz",
            },
        ],
        "terminal_output": True,
        "watch": [str(other), "ExecFinished"],
    }
    made = submit(ada, task_spec=spec)
    info = ok(ada.call("GET", f"/tasks/{made}"))["info"]
    assert info["spec"] == spec


def resource(worker: UUID) -> dict[str, str]:
    return {"resource_id": "r" * 99, "worker_id": str(worker), "type": "model"}


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"priority": "1"}, 422, ["priority", "int"]),
        ({"priority": 1.5}, 422, ["priority"]),
        ({"priority": True}, 422, ["priority"]),
        ({"priority": 2**31}, 422, ["priority"]),
        ({"tags": "gpu"}, 422, ["tags", "array"]),
        ({"tags": [1]}, 422, ["tags[0]"]),
        ({"tags": [""]}, 400, ["tags", "empty"]),
        ({"labels": ["x" * 257]}, 400, ["labels", "256"]),
        ({"labels": [str(n) for n in range(65)]}, 400, ["labels", "64"]),
        ({"timeout": 600}, 422, ["timeout", "str"]),
        ({"timeout": "-5s"}, 400, ["timeout", "negative"]),
        ({"timeout": "10"}, 400, ["timeout"]),
        ({"timeout": "10 parsecs"}, 400, ["timeout"]),
        ({"timeout": "999999999y"}, 400, ["timeout"]),
        ({"group_name": 7}, 422, ["group_name"]),
        ({"group_name": "nobody"}, 404, ["nobody"]),
        ({"group_name": "a/../b"}, 404, []),
        ({"task_spec": {"args": "true"}}, 422, ["task_spec.args"]),
        ({"task_spec": {"envs": {"A=B": "1"}}}, 400, ["task_spec", "environment"]),
        ({"task_spec": {"envs": {"A": 1}}}, 422, ["task_spec.envs"]),
        ({"task_spec": {"watch": ["x", "ExecFinished"]}}, 422, ["watch[0]"]),
        ({"task_spec": {"watch": [str(uuid4()), "Nope"]}}, 422, ["watch[1]"]),
        ({"task_spec": {"terminal_output": 1}}, 422, ["terminal_output"]),
        ({"task_spec": {"args": ["x" * 70_000]}}, 400, ["65536"]),
        ({"task_spec": {"args": ["x"] * 1025}}, 422, ["args"]),
        ({"suite_uuid": str(uuid4())}, 404, ["Suite"]),
        ({"suite_uuid": "x"}, 422, ["suite_uuid"]),
        ({"depends_on": [str(uuid4())]}, 400, ["depends"]),
        ({"depends_on": [0]}, 400, ["depends_on"]),
        ({"depends_on": ["x"]}, 422, ["depends_on[0]"]),
        ({"retry": {"max_failures": 0}}, 422, ["retry.max_failures"]),
        ({"retry": {"max_failures": 101}}, 422, ["retry.max_failures"]),
        ({"retry": {"what": 1}}, 422, ["retry"]),
        ({"limits": {"memory": 1}}, 422, ["limits.memory"]),
        ({"limits": {"on_oom": {"factor": 2, "max": 2**30}}}, 400, ["limits", "memory"]),
        ({"concurrency_key": ""}, 422, ["concurrency_key"]),
        ({"middleware": {"middleware_chain": ["y" * 250] * 64 + [""]}}, 422, ["middleware"]),
        ({"middleware": {"chain_index": 99}}, 422, ["middleware.chain_index"]),
        ({"affinity": {"near": "x"}}, 422, ["affinity"]),
        ({"tags": ["node:echo"]}, 400, ["tags", "reserved"]),
        ({"resource_refs": [{"worker_id": "x"}]}, 422, ["resource_refs"]),
        ({"resource_refs": [resource(uuid4())]}, 400, ["resource_refs", "worker"]),
        ({"resource_refs": [resource(uuid4())] * 200}, 400, ["resource_refs", "bytes"]),
    ],
)
def test_what_is_wrong_with_a_task_is_said_by_name(
    ada: Caller, changes: dict[str, object], status: int, words: list[str]
) -> None:
    refused(ada.call("POST", "/tasks", task(**changes)), status, *words)
    assert not ActiveTask.objects.exists()


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "a/..", "", "a/", "a/."])
def test_a_local_path_cannot_leave_its_directory(ada: Caller, path: str) -> None:
    resource = {"remote_file": {"Attachment": {"key": "k"}}, "local_path": path}
    answer = ada.call("POST", "/tasks", task(task_spec={"resources": [resource]}))
    refused(answer, 400, "task_spec.resources[0]", "local path")


@pytest.mark.parametrize(
    "missing", ["group_name", "tags", "labels", "timeout", "priority", "task_spec"]
)
def test_all_six_members_are_required(ada: Caller, missing: str) -> None:
    body = task()
    del body[missing]
    refused(ada.call("POST", "/tasks", body), 422, missing)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"nonsense",
        b"[]",
        b"null",
        b'{"a":1,"a":2}',
        b'{"priority": NaN}',
        b'{"priority": 1e999}',
        b'{"priority": 99999999999999999999}',
        b'{"group_name": "\\u0000"}',
        b'{"group_name": "\\ud800"}',
        b'{"group_name": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'"' + b"x" * 5_000_000 + b'"',
    ],
    ids=lambda raw: raw[:24].decode("latin-1"),
)
@pytest.mark.parametrize("path", ["/tasks", "/tasks/submit", "/tasks/array", "/tasks/query"])
def test_no_bytes_make_the_server_stumble(ada: Caller, raw: bytes, path: str) -> None:
    headers = {"authorization": f"Bearer {ada.token}"}
    answer = Client().generic("POST", path, raw, "application/json", headers=headers)
    assert 400 <= answer.status_code < 500
    assert answer.json()["msg"]


def test_only_writers_of_the_group_submit(
    ada: Caller, bob: Caller, ron: Caller, eve: Caller, lab_group: Group
) -> None:
    ok(ada.call("POST", "/tasks", task("lab")))
    ok(bob.call("POST", "/tasks", task("lab")))
    refused(ron.call("POST", "/tasks", task("lab")), 403)
    foreign = refused(eve.call("POST", "/tasks", task("lab")), 404)
    absent = refused(eve.call("POST", "/tasks", task("bal")), 404)
    assert foreign["msg"].replace("lab", "bal") == absent["msg"]


def test_a_locked_group_takes_nothing(ada: Caller, lab_group: Group) -> None:
    Group.objects.filter(pk=lab_group.pk).update(state=GroupState.LOCKED)
    refused(ada.call("POST", "/tasks", task("lab")), 400, "not active")


def test_retry_and_limits_reach_the_row(ada: Caller) -> None:
    made = submit(
        ada,
        retry={"max_failures": 2, "backoff_s": 0.5, "retry_on": {"exit_codes": [75], "oom": True}},
        limits={"memory": 2**30, "on_oom": {"factor": 2, "max": 2**32}},
        concurrency_key="k",
        affinity={"key": "x"},
        middleware={"host_node_id": "h", "middleware_chain": ["m"], "chain_index": 0},
    )
    row = ActiveTask.objects.get(uuid=made)
    assert (row.max_failures, row.backoff_s) == (2, 0.5)
    assert row.retry_on == {"exit_codes": [75], "oom": True}
    assert row.limits == {"memory": 2**30, "on_oom": {"factor": 2.0, "max": 2**32}}
    assert (row.concurrency_key, row.affinity, row.middleware) == (
        "k",
        {"key": "x"},
        {"host_node_id": "h", "middleware_chain": ["m"], "chain_index": 0},
    )


def test_a_task_waits_for_those_it_depends_on(ada: Caller, worker: TeamWorker) -> None:
    upstream = submit(ada)
    downstream = submit(ada, depends_on=[{"task": str(upstream), "condition": "failed"}])
    plain = submit(ada, depends_on=[str(upstream)])
    states = {
        uuid: ok(ada.call("GET", f"/tasks/{uuid}"))["info"]["state"]
        for uuid in (upstream, downstream, plain)
    }
    assert states == {upstream: "Ready", downstream: "Pending", plain: "Pending"}
    worker.run(exit_status=256)
    assert ok(ada.call("GET", f"/tasks/{downstream}"))["info"]["state"] == "Ready"
    ended = ok(ada.call("GET", f"/tasks/{plain}"))["info"]
    assert (ended["state"], ended["outcome"], ended["result"]) == (
        "Cancelled",
        "upstream_failed",
        None,
    )


def test_a_task_cannot_depend_on_another_groups_task(
    ada: Caller, eve: Caller, lab_group: Group
) -> None:
    foreign = submit(ada, group="lab")
    answer = eve.call("POST", "/tasks", task("eve", depends_on=[str(foreign)]))
    refused(answer, 400, str(foreign))
    assert not TaskDependency.objects.exists()


def test_the_same_key_and_body_are_answered_as_the_first_time(ada: Caller) -> None:
    headers = {"idempotency-key": "once"}
    first = ok(ada.call("POST", "/tasks", task(), **headers))
    assert ok(ada.call("POST", "/tasks", task(), **headers)) == first
    assert ActiveTask.objects.count() == 1
    refused(ada.call("POST", "/tasks", task(priority=1), **headers), 409, "Idempotency-Key")
    refused(ada.call("POST", "/tasks", task(), **{"idempotency-key": "x" * 256}), 400)


def test_keys_belong_to_their_user(ada: Caller, eve: Caller) -> None:
    headers = {"idempotency-key": "once"}
    ok(ada.call("POST", "/tasks", task(), **headers))
    ok(eve.call("POST", "/tasks", task("eve"), **headers))
    assert Submission.objects.count() == 2


def test_items_of_a_batch_stand_alone(ada: Caller, eve: Caller, lab_group: Group) -> None:
    bad_path = {"remote_file": {"Attachment": {"key": "k"}}, "local_path": "../x"}
    tasks = [
        task(),
        task("nobody"),
        task(task_spec={"resources": [bad_path]}),
        task("lab", labels=["second"]),
        task(depends_on=[str(uuid4())]),
    ]
    results = ok(ada.call("POST", "/tasks/submit", {"tasks": tasks}))["results"]
    assert [next(iter(result)) for result in results] == ["Ok", "Err", "Err", "Ok", "Err"]
    assert "nobody" in results[1]["Err"]["msg"]
    assert "local path" in results[2]["Err"]["msg"]
    assert results[3]["Ok"]["task_id"] == 1
    assert ActiveTask.objects.count() == 2
    refusals = ok(eve.call("POST", "/tasks/submit", {"tasks": [task("lab"), task("bal")]}))
    first, second = (result["Err"]["msg"] for result in refusals["results"])
    assert first.replace("lab", "bal") == second


def test_a_batch_of_the_wrong_shape_writes_nothing(ada: Caller) -> None:
    body = {"tasks": [task(), task(priority="x")]}
    refused(ada.call("POST", "/tasks/submit", body), 422, "tasks[1].priority")
    refused(ada.call("POST", "/tasks/submit", {"tasks": []}), 400, "tasks")
    refused(ada.call("POST", "/tasks/submit", {"tasks": {}}), 422, "tasks")
    refused(ada.call("POST", "/tasks/submit", {}), 422, "tasks")
    assert not ActiveTask.objects.exists()


def test_a_batch_is_repeated_by_its_key(ada: Caller) -> None:
    body, headers = {"tasks": [task(), task("nobody")]}, {"idempotency-key": "batch"}
    first = ok(ada.call("POST", "/tasks/submit", body, **headers))
    assert ok(ada.call("POST", "/tasks/submit", body, **headers)) == first
    assert ActiveTask.objects.count() == 1


@pytest.mark.alone
def test_ten_thousand_tasks_are_taken_within_five_seconds(ada: Caller) -> None:
    body = {"tasks": [task(labels=[f"n:{n}"]) for n in range(10_000)]}
    started = time.monotonic()
    results = ok(ada.call("POST", "/tasks/submit", body))["results"]
    assert time.monotonic() - started < allowed_s(5)
    assert all("Ok" in result for result in results)
    too_many = {"tasks": body["tasks"] + [task()]}
    refused(ada.call("POST", "/tasks/submit", too_many), 413, "tasks")


def test_an_array_makes_one_task_per_row(ada: Caller) -> None:
    template = task(
        labels=["sweep", "lr:{lr}"],
        task_spec={"args": ["train", "--lr={lr}", "{not_a_parameter}"], "envs": {"SEED": "{seed}"}},
    )
    rows = [
        {"params": {"lr": 0.1, "seed": 1}},
        {"params": {"lr": "1e-3", "seed": 2}, "priority": 9},
    ]
    made = ok(ada.call("POST", "/tasks/array", {"template": template, "rows": rows}), 201)
    assert (made["first_task_id"], made["last_task_id"], made["count"]) == (1, 2, 2)
    first, second = (ok(ada.call("GET", f"/tasks/{uuid}"))["info"] for uuid in made["uuids"])
    assert first["spec"]["args"] == ["train", "--lr=0.1", "{not_a_parameter}"]
    assert first["spec"]["envs"] == {"SEED": "1"}
    assert first["labels"] == ["lr:0.1", "sweep"]
    assert (second["labels"], second["priority"]) == (["lr:1e-3", "sweep"], 9)


def test_rows_of_an_array_depend_on_each_other(ada: Caller, worker: TeamWorker) -> None:
    rows = [{}, {"depends_on": [0]}, {"depends_on": [{"task": 1, "condition": "any"}]}]
    made = ok(ada.call("POST", "/tasks/array", {"template": task(), "rows": rows}), 201)
    assert worker.run() == UUID(made["uuids"][0])
    assert worker.run(exit_status=256) == UUID(made["uuids"][1])
    assert worker.run() == UUID(made["uuids"][2])
    outcomes = ArchivedTask.objects.order_by("number").values_list("outcome", flat=True)
    assert list(outcomes) == [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"template": task(), "rows": []}, 422, ["rows"]),
        ({"template": task()}, 422, ["rows"]),
        ({"rows": [{}]}, 422, ["template"]),
        ({"template": task(), "rows": [{"parms": {}}]}, 422, ["rows[0]"]),
        ({"template": task(), "rows": [{"params": {"a": None}}]}, 422, ["rows[0].params"]),
        ({"template": task(), "rows": [{"depends_on": [0]}]}, 400, ["cycle"]),
        ({"template": task(), "rows": [{"depends_on": [5]}]}, 400, ["row 5"]),
        ({"template": task("nobody"), "rows": [{}]}, 404, ["nobody"]),
        (
            {
                "template": task(task_spec={"args": ["{a}"]}),
                "rows": [{"params": {"a": "1"}}, {"params": {}}],
            },
            400,
            ["row 1", "'a'"],
        ),
    ],
)
def test_an_array_is_taken_as_a_whole_or_not_at_all(
    ada: Caller, body: dict[str, object], status: int, words: list[str]
) -> None:
    refused(ada.call("POST", "/tasks/array", body), status, *words)
    assert not ActiveTask.objects.exists()


def test_an_array_is_repeated_by_its_key(ada: Caller) -> None:
    body, headers = {"template": task(), "rows": [{}, {}]}, {"idempotency-key": "array"}
    first = ok(ada.call("POST", "/tasks/array", body, **headers), 201)
    assert ok(ada.call("POST", "/tasks/array", body, **headers), 201) == first
    assert ActiveTask.objects.count() == 2


@pytest.mark.alone
def test_a_hundred_thousand_rows_are_taken_within_ten_seconds(ada: Caller) -> None:
    template = task(task_spec={"args": ["run", "--seed={seed}"]})
    rows = [{"params": {"seed": n}} for n in range(100_000)]
    started = time.monotonic()
    made = ok(ada.call("POST", "/tasks/array", {"template": template, "rows": rows}), 201)
    assert time.monotonic() - started < allowed_s(10)
    assert made["count"] == len(set(made["uuids"])) == 100_000
    assert ActiveTask.objects.count() == 100_000
    too_many = json.dumps({"template": template, "rows": [{}] * 100_001}).encode()
    headers = {"authorization": f"Bearer {ada.token}"}
    answer = Client().generic("POST", "/tasks/array", too_many, "application/json", headers=headers)
    refused(answer, 422, "rows")
