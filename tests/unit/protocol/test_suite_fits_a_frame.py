"""A suite reaches its hosts in one frame, so what does not fit one is refused when it is made."""

from uuid import uuid4

import msgspec
import pytest

from mitosis_protocol import limits
from mitosis_protocol.specs import CpuBinding, EnvHookSpec, WorkerSchedule
from mitosis_protocol.suites import SuiteChange, SuiteSpec
from mitosis_protocol.to_manager import TO_MANAGER, SuiteAssigned, TaskSuiteSpec

LARGEST_ID = 2**63 - 1
SCHEDULE = WorkerSchedule(
    worker_count=256, cpu_binding=CpuBinding(cores=list(range(4096)), cores_per_worker=4096)
)


def hook(size: int) -> EnvHookSpec:
    return EnvHookSpec(args=["true"], timeout="1h", envs={"A": "x" * size})


def spec(**members: object) -> SuiteSpec:
    # As it arrives: rules are checked when a body is decoded.
    body = {"group_name": "g" * 255, "worker_schedule": SCHEDULE, **members}
    return msgspec.convert(msgspec.to_builtins(body), SuiteSpec)


def frame_of(suite: SuiteSpec) -> bytes:
    assigned = TaskSuiteSpec(
        uuid=uuid4(),
        name=suite.name or "",
        description=suite.description or "",
        group_id=LARGEST_ID,
        tags=suite.tags,
        labels=suite.labels,
        priority=suite.priority,
        worker_schedule=suite.worker_schedule,
        env_preparation=suite.env_preparation,
        env_cleanup=suite.env_cleanup,
        group_name=suite.group_name,
        limits=suite.limits,
    )
    message = SuiteAssigned(suite_uuid=assigned.uuid, suite_spec=assigned, assignment_id=LARGEST_ID)
    return TO_MANAGER.encode(message)


def test_the_parts_of_a_suite_fit_a_frame_together():
    parts = (
        limits.MAX_DESCRIPTION_BYTES,
        2 * limits.MAX_TAGS_BYTES,
        limits.MAX_HOOKS_BYTES,
        limits.MAX_SCHEDULE_BYTES,
        limits.SUITE_ENVELOPE_BYTES,
    )
    assert sum(parts) <= limits.MAX_FRAME_BYTES
    assert len(msgspec.json.encode(SCHEDULE)) <= limits.MAX_SCHEDULE_BYTES


def test_the_largest_suite_that_is_taken_fits_a_frame():
    room = limits.MAX_HOOKS_BYTES - 300
    largest = spec(
        name="\U0001f9ec" * 255,
        description="\U0001f9ec" * 10_000,
        tags=["t" * 253 + f"{n:03}" for n in range(64)],
        labels=["l" * 253 + f"{n:03}" for n in range(64)],
        env_preparation=hook(100_000),
        env_cleanup=hook(room - 100_000),
        limits={"memory": 2**50, "cpus": 1.5, "pids": 4_194_304},
    )
    assert len(frame_of(largest)) <= limits.MAX_FRAME_BYTES


@pytest.mark.parametrize(
    ("member", "body"),
    [
        ("env_preparation", {"env_preparation": hook(100_000), "env_cleanup": hook(100_000)}),
        ("env_cleanup", {"env_cleanup": EnvHookSpec(args=["x" * 200_000], timeout="1m")}),
        ("description", {"description": "\x01" * 10_000}),
        ("tags", {"tags": ["\x01" * 256] * 64}),
        ("labels", {"labels": ["\x01" * 256] * 64}),
    ],
)
def test_a_suite_that_would_not_fit_is_refused_by_the_member_that_is_too_large(
    member: str, body: dict[str, object]
):
    with pytest.raises(msgspec.ValidationError, match=rf"{member}.*at most \d+ fit"):
        spec(**body)


@pytest.mark.parametrize(
    ("member", "body"),
    [
        ("description", {"description": "\x01" * 10_000}),
        ("labels", {"labels": ["\x01" * 256] * 64}),
    ],
)
def test_a_change_cannot_make_a_suite_too_large(member: str, body: dict[str, object]):
    with pytest.raises(msgspec.ValidationError, match=member):
        msgspec.convert(body, SuiteChange)
    assert msgspec.convert({"description": None, "priority": 1}, SuiteChange).priority == 1
