"""The pure rules of hooks: environment, texts, codes, sums of the store."""

from pathlib import Path
from uuid import uuid4

import pytest

from mitosis_protocol.specs import EnvHookSpec, TaskSpec
from nodeagent.hooks.context import HookContext, Surroundings, hook_environment
from nodeagent.hooks.runner import exit_code, text_tail
from nodeagent.marker import MARKER, SUITE_DIR, marker_entry, marker_value
from nodeagent.worker.comm import TaskOffer
from nodeagent.worker.environment import own_env, shared_env
from nodeagent.worker.transfers import StoredSums, stored_sums
from nodeagent.worker.workspace import Workspace

MD5 = "9a0364b9e99bb480dd25e1f0284c8555"


def context() -> HookContext:
    return HookContext(
        phase="preparation",
        suite_uuid=uuid4(),
        suite_name="s",
        group_name="g",
        worker_count=2,
        manager_uuid=uuid4(),
        assignment_id=1,
    )


def around(*, is_sandboxed: bool = False, **inherited: str) -> Surroundings:
    return Surroundings(
        inherited=inherited, marker="m@d", directory=Path("/d"), is_sandboxed=is_sandboxed
    )


def test_what_mitosis_promises_wins_over_the_user_and_the_agent() -> None:
    about = context()
    hook = EnvHookSpec(
        args=["true"],
        timeout="1s",
        envs={"A": "user", "MITOSIS_GROUP_NAME": "lie", "MITO_X": "lie", MARKER: "lie"},
    )
    env = hook_environment(hook, about, around(A="agent", B="agent", MITO_TOKEN="secret"))
    assert env == {
        "A": "user",
        "B": "agent",
        **about.variables(),
        "MITO_RESOURCE_DIR": "/d",
        SUITE_DIR: "/d",
        MARKER: "m@d",
    }


def test_a_sandboxed_hook_has_a_home_of_its_own_unless_it_says_otherwise() -> None:
    hook = EnvHookSpec(args=["true"], timeout="1s")
    env = hook_environment(hook, context(), around(is_sandboxed=True, HOME="/root", USER="root"))
    assert env["HOME"] == "/d"
    assert "USER" not in env
    chosen = EnvHookSpec(args=["true"], timeout="1s", envs={"HOME": "/h"})
    assert hook_environment(chosen, context(), around(is_sandboxed=True))["HOME"] == "/h"


def test_commands_of_a_managed_worker_carry_its_mark_and_know_the_suites_directory() -> None:
    spec = TaskSpec(args=["true"], envs={MARKER: "lie", SUITE_DIR: "lie"})
    offer = TaskOffer(attempt_id=1, uuid=uuid4(), timeout_s=1.0, spec=spec)
    space = Workspace(Path("/w"), -1)
    env = {
        **shared_env({MARKER: "m@d", SUITE_DIR: "/s", "MITOSIS_OTHER": "x"}, space),
        **own_env(offer),
    }
    assert (env[MARKER], env[SUITE_DIR]) == ("m@d", "/s")
    assert "MITOSIS_OTHER" not in env
    independent = {**shared_env({}, space), **own_env(offer)}
    assert MARKER not in independent
    assert SUITE_DIR not in independent


def test_a_mark_names_instance_and_directory(tmp_path: Path) -> None:
    assert marker_value("a", tmp_path) != marker_value("a", tmp_path / "x")
    assert marker_value("a", tmp_path) != marker_value("b", tmp_path)
    assert marker_entry("a@b") == b"MITOSIS_AGENT_INSTANCE=a@b"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"short\n", "short\n"),
        (b"x\0y", "x\ufffdy"),
        (b"x\xffy", "x\ufffdy"),
        ("é".encode() * 2048, "é" * 2048),
        (b"x" + "é".encode() * 2048, "é" * 2048),
        ("é".encode() * 2048 + b"x", "é" * 2047 + "x"),
        ("🎉".encode() * 1024 + b"xx", "🎉" * 1023 + "xx"),
        (b"a" * 5000, "a" * 4096),
    ],
)
def test_the_tail_is_valid_text_and_never_breaks_a_character(data: bytes, text: str) -> None:
    assert text_tail(data) == text


@pytest.mark.parametrize("data", [b"\xff" * 5000, b"\x80" * 4097, b"\x00" * 9000])
def test_the_tail_of_garbage_stays_within_its_bytes(data: bytes) -> None:
    text = text_tail(data)
    assert 4000 < len(text.encode()) <= 4096
    assert "\0" not in text


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3 << 8, 3), (9, 137), (11 | 128, 139)])
def test_exit_codes_are_those_of_a_shell(status: int, code: int) -> None:
    assert exit_code(status) == code


@pytest.mark.parametrize(
    ("headers", "md5"),
    [
        ({}, None),
        ({"etag": f'"{MD5}"'}, MD5),
        ({"etag": f'"{MD5.upper()}"'}, MD5),
        ({"etag": f'"{MD5}-3"'}, None),
        ({"etag": f'W/"{MD5}"'}, None),
        ({"etag": f'"{MD5}"', "x-amz-server-side-encryption": "AES256"}, MD5),
        ({"etag": f'"{MD5}"', "x-amz-server-side-encryption": "aws:kms"}, None),
        ({"etag": f'"{MD5}"', "x-amz-server-side-encryption-customer-algorithm": "AES256"}, None),
        ({"content-md5": "mgNkuembtIDdJeHwKEyFVQ==", "etag": '"x"'}, MD5),
        ({"content-md5": "not base64!", "etag": f'"{MD5}"'}, MD5),
    ],
)
def test_only_a_real_sum_of_the_store_is_believed(headers: dict[str, str], md5: str | None) -> None:
    assert stored_sums(headers) == StoredSums(md5=md5)
