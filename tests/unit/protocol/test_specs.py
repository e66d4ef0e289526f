"""Specs: what a task may ask for, and what is refused before it is stored."""

import json

import msgspec
import pytest

from mitosis_protocol.codec import TASK_SPEC, DecodeFailed
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_ARGS, MAX_ENV_BYTES, MAX_RESOURCES, MAX_SPEC_BYTES
from mitosis_protocol.specs import (
    CpuBinding,
    EnvHookSpec,
    RemoteResource,
    TaskSpec,
    WorkerSchedule,
    check_attachment_key,
    check_local_path,
)

UUID = "550e8400-e29b-41d4-a716-446655440000"
FULL = {
    "args": ["python", "train.py"],
    "envs": {"SEED": "1"},
    "resources": [
        {"remote_file": {"Attachment": {"key": "data/a.bin"}}, "local_path": "in/a.bin"},
        {
            "remote_file": {"Artifact": {"uuid": UUID, "content_type": "result"}},
            "local_path": "b",
        },
    ],
    "terminal_output": True,
    "watch": [UUID, "ExecFinished"],
}


def decode(**members):
    return TASK_SPEC.decode(json.dumps({"args": ["true"], **members}))


def test_a_spec_is_written_as_it_was_read():
    assert json.loads(TASK_SPEC.encode(TASK_SPEC.decode(json.dumps(FULL)))) == FULL


def test_only_the_arguments_are_required():
    spec = TASK_SPEC.decode(b'{"args": []}')
    assert spec == TaskSpec(args=[])
    with pytest.raises(DecodeFailed, match="args"):
        TASK_SPEC.decode(b"{}")


def test_unknown_members_are_ignored():
    assert decode(someday=1) == TaskSpec(args=["true"])


def test_defaults_are_not_shared_between_specs():
    assert decode().envs is not decode().envs


@pytest.mark.parametrize(
    "remote",
    [
        {},
        {"Attachment": {"key": "k"}, "Artifact": {"uuid": UUID, "content_type": "result"}},
        {"attachment": {"key": "k"}},
        {"Attachment": {}},
        {"Artifact": {"uuid": "no", "content_type": "result"}},
        {"Artifact": {"uuid": UUID, "content_type": "core-dump"}},
    ],
)
def test_a_remote_file_is_exactly_one_of_the_two_kinds(remote):
    with pytest.raises(DecodeFailed):
        decode(resources=[{"remote_file": remote, "local_path": "x"}])


def test_aliases_of_a_content_type_are_read_inside_a_spec():
    artifact = {"Artifact": {"uuid": UUID, "content_type": "Terminal"}}
    spec = decode(resources=[{"remote_file": artifact, "local_path": "x"}])
    assert spec.resources[0].remote_file.artifact.content_type == "std-log"


def test_a_remote_file_cannot_be_built_wrong_either():
    with pytest.raises(InvalidValue):
        RemoteResource()


@pytest.mark.parametrize("path", ["x", "a/b/c", "..a/b..", "a/./b", ".hidden", "a b", "a\\b"])
def test_local_paths_below_the_directory(path):
    check_local_path(path)


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "a/../../x", "a/..", "..", "", ".", "a/", "a/.", "a\0b", "x" * 4096],
)
def test_local_paths_that_leave_it_or_name_nothing(path):
    with pytest.raises(InvalidValue, match="local path"):
        check_local_path(path)
    with pytest.raises(DecodeFailed):
        decode(resources=[{"remote_file": {"Attachment": {"key": "k"}}, "local_path": path}])


@pytest.mark.parametrize("name", ["", "A=B", "A\0", "\0"])
def test_names_that_execve_cannot_carry(name):
    with pytest.raises(DecodeFailed):
        decode(envs={name: "x"})
    with pytest.raises(InvalidValue):
        TaskSpec(args=[], envs={name: "x"})


def test_a_nul_in_a_value_or_an_argument_is_refused():
    with pytest.raises(InvalidValue, match="SECRET"):
        TaskSpec(args=[], envs={"SECRET": "a\0b"})
    with pytest.raises(InvalidValue, match="argument"):
        TaskSpec(args=["a\0b"])


def test_the_value_of_a_bad_variable_is_not_shown():
    with pytest.raises(InvalidValue) as refusal:
        TaskSpec(args=[], envs={"A=": "hunter2"})
    assert "hunter2" not in str(refusal.value)


def test_limits_of_a_spec():
    with pytest.raises(DecodeFailed, match="length <="):
        decode(args=["x"] * (MAX_ARGS + 1))
    with pytest.raises(InvalidValue, match="bytes"):
        TaskSpec(args=[], envs={"A": "x" * MAX_ENV_BYTES})
    resource = {"remote_file": {"Attachment": {"key": "k"}}, "local_path": "x"}
    with pytest.raises(ValueError, match="length <="):
        msgspec.convert({"args": [], "resources": [resource] * (MAX_RESOURCES + 1)}, TaskSpec)
    with pytest.raises(DecodeFailed) as refusal:
        decode(args=["x" * MAX_SPEC_BYTES])
    assert refusal.value.code == "protocol.too_large"


@pytest.mark.parametrize("key", ["k", "a/b", "a b/c", "..a", "a..", "x" * 1000])
def test_attachment_keys(key):
    check_attachment_key(key, group="g")


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "a/./b", "a/../b", "..", ".", "a\0", "x" * 1023]
)
def test_attachment_keys_that_are_refused(key):
    with pytest.raises(InvalidValue):
        check_attachment_key(key, group="g")


def test_a_hook_needs_a_command_and_a_real_timeout():
    hook = msgspec.json.decode(b'{"args": ["sh"], "timeout": "5m"}', type=EnvHookSpec)
    assert hook.timeout_s == 300
    for body in (
        b'{"args": [], "timeout": "5m"}',
        b'{"args": ["sh"], "timeout": "5"}',
        b'{"args": ["sh"], "timeout": "0"}',
        b'{"args": ["sh"]}',
        b'{"args": ["sh"], "timeout": "5m", "envs": {"A=": "1"}}',
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(body, type=EnvHookSpec)


@pytest.mark.parametrize(
    "plan",
    [
        {"worker_count": 0},
        {"worker_count": 257},
        {"worker_count": 4_000_000_000},
        {"worker_count": 1, "task_prefetch_count": 129},
        {"worker_count": 256, "task_prefetch_count": 1025},
        {"worker_count": 1, "task_prefetch_count": -1},
        {"worker_count": 1, "cpu_binding": {"cores": [0, 0]}},
        {"worker_count": 1, "cpu_binding": {"cores": [-1]}},
        {"worker_count": 1, "cpu_binding": {"cores_per_worker": 0}},
        {"worker_count": 1, "cpu_binding": {"strategy": "Random"}},
    ],
)
def test_worker_plans_have_ceilings(plan):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(plan, WorkerSchedule)


def test_a_worker_plan_may_use_all_it_is_allowed():
    plan = msgspec.convert(
        {
            "worker_count": 256,
            "task_prefetch_count": 1024,
            "cpu_binding": {"cores": [0, 1], "strategy": "Exclusive"},
        },
        WorkerSchedule,
    )
    assert plan.cpu_binding == CpuBinding(cores=[0, 1], strategy="Exclusive")
