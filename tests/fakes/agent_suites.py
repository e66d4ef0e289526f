"""Suites and tasks for tests of the agent's core."""

from uuid import UUID, uuid4

from mitosis_protocol.specs import EnvHookSpec, TaskSpec, WorkerSchedule
from mitosis_protocol.to_manager import OfferedTask, TaskSuiteSpec

MANAGER = UUID(int=77)
HOOK = EnvHookSpec(args=["true"], timeout="10s")


def make_suite(workers: int = 2, prefetch: int = 0, **members: object) -> TaskSuiteSpec:
    given: dict[str, object] = {
        "uuid": uuid4(),
        "name": "campaign",
        "description": "",
        "group_id": 1,
        "tags": [],
        "labels": [],
        "priority": 0,
        "worker_schedule": WorkerSchedule(workers, prefetch),
        "env_preparation": HOOK,
        "env_cleanup": HOOK,
        **members,
    }
    return TaskSuiteSpec(**given)  # type: ignore[arg-type]


def make_task(attempt_id: int, **members: object) -> OfferedTask:
    given: dict[str, object] = {
        "task_id": attempt_id,
        "task_uuid": UUID(int=attempt_id),
        "spec": TaskSpec(args=["true"]),
        "priority": 0,
        "max_failures": 6,
        **members,
    }
    return OfferedTask(**given)  # type: ignore[arg-type]
