"""What is wrong with a suite is said by name: a 4xx that points at the field."""

from typing import Any

import pytest

from suites.models import TaskSuite
from tests.integration.suites.suite_world import refused, spec
from tests.integration.workers.people import Caller

pytestmark = pytest.mark.django_db

HOOK = {"args": ["x"], "timeout": "5m"}


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"group_name": "nobody"}, 404, ["group_name", "nobody"]),
        ({"group_name": "a/../b"}, 404, ["group_name"]),
        ({"group_name": 7}, 400, ["group_name"]),
        ({"worker_schedule": {"worker_count": -1}}, 400, ["worker_schedule.worker_count"]),
        ({"worker_schedule": {"worker_count": 0}}, 400, ["worker_schedule.worker_count"]),
        ({"worker_schedule": {"worker_count": 4_000_000_000}}, 400, ["worker_count"]),
        ({"worker_schedule": {"worker_count": 1.5}}, 400, ["worker_count"]),
        ({"worker_schedule": {}}, 400, ["worker_schedule.worker_count"]),
        (
            {"worker_schedule": {"worker_count": 4, "task_prefetch_count": 1000}},
            400,
            ["worker_schedule", "prefetch"],
        ),
        (
            {"worker_schedule": {"worker_count": 4, "task_prefetch_count": -1}},
            400,
            ["worker_schedule.task_prefetch_count"],
        ),
        (
            {"worker_schedule": {"worker_count": 4, "cpu_binding": {"cores": [100_000]}}},
            400,
            ["cpu_binding.cores"],
        ),
        (
            {"worker_schedule": {"worker_count": 4, "cpu_binding": {"cores": [-1]}}},
            400,
            ["cpu_binding.cores"],
        ),
        (
            {"worker_schedule": {"worker_count": 4, "cpu_binding": {"cores": [1, 1]}}},
            400,
            ["cpu_binding", "twice"],
        ),
        (
            {"worker_schedule": {"worker_count": 4, "cpu_binding": {"strategy": "Fastest"}}},
            400,
            ["cpu_binding.strategy"],
        ),
        ({"env_preparation": {"timeout": "5m"}}, 400, ["env_preparation.args"]),
        ({"env_preparation": {"args": [], "timeout": "5m"}}, 400, ["env_preparation.args"]),
        ({"env_preparation": {"args": ["x"]}}, 400, ["env_preparation.timeout"]),
        ({"env_preparation": {**HOOK, "timeout": "soon"}}, 400, ["env_preparation"]),
        ({"env_cleanup": {**HOOK, "timeout": "-5m"}}, 400, ["env_cleanup"]),
        ({"env_cleanup": {**HOOK, "timeout": "0s"}}, 400, ["env_cleanup", "timeout"]),
        ({"env_cleanup": {**HOOK, "timeout": 5}}, 400, ["env_cleanup.timeout"]),
        ({"env_preparation": {**HOOK, "envs": {"A=B": "1"}}}, 400, ["env_preparation"]),
        (
            {
                "env_preparation": {
                    **HOOK,
                    "resources": [
                        {"remote_file": {"Attachment": {"key": "k"}}, "local_path": "../x"}
                    ],
                }
            },
            400,
            ["env_preparation.resources[0]"],
        ),
        ({"priority": 2**31}, 400, ["priority"]),
        ({"priority": "1"}, 400, ["priority"]),
        ({"tags": "gpu"}, 400, ["tags"]),
        ({"tags": [""]}, 400, ["tags"]),
        ({"tags": ["x" * 300]}, 400, ["tags"]),
        ({"labels": [str(n) for n in range(65)]}, 400, ["labels"]),
        ({"name": "x" * 256}, 400, ["name"]),
        ({"max_running": 0}, 400, ["max_running"]),
        ({"max_failures": -3}, 400, ["max_failures"]),
        ({"failure_rate": 1.5}, 400, ["failure_rate"]),
        ({"settle_seconds": -1}, 400, ["settle_seconds"]),
        ({"linger_seconds": 10**9}, 400, ["linger_seconds"]),
        ({"on_partition": "pray"}, 400, ["on_partition"]),
        ({"limits": {"memory": 1}}, 400, ["limits.memory"]),
        ({"retry": {"max_failures": 0}}, 400, ["retry.max_failures"]),
        ({"retry": {"retry_on": {"moon": True}}}, 400, ["retry"]),
        ({"wroker_schedule": {}}, 400, ["wroker_schedule"]),
    ],
)
def test_bad_input_is_refused_and_the_field_is_named(
    ada: Caller, changes: dict[str, Any], status: int, words: list[str]
) -> None:
    refused(ada.call("POST", "/suites", spec(**changes)), status, *words)
    assert not TaskSuite.objects.exists()


@pytest.mark.parametrize("missing", ["group_name", "worker_schedule"])
def test_a_missing_member_is_named(ada: Caller, missing: str) -> None:
    body = spec()
    del body[missing]
    refused(ada.call("POST", "/suites", body), 400, missing)


@pytest.mark.parametrize("body", [None, [], "x", 7])
def test_a_body_that_is_no_object_is_refused(ada: Caller, body: object) -> None:
    answer = ada.call("POST", "/suites", body)
    assert 400 <= answer.status_code < 500, answer.content
