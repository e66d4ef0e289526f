"""Hooks as real processes: what they see, how they end, and that nothing outlives them."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

from nodeagent.hooks.directories import Sandbox, remove_suite_dirs, suite_dirs
from nodeagent.hooks.runner import run_hook
from tests.fakes.worker_process import living, wait_until
from tests.integration.nodeagent.hook_fixtures import NOBODY, lab, open_dir, sandbox
from tests.integration.nodeagent.hook_lab import Lab, context, shell

__all__ = ["lab", "open_dir", "sandbox"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
DUMP = "env -0 > env.bin"


def seen(path: Path) -> dict[str, str]:
    entries = (path / "env.bin").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


async def test_preparation_runs_in_the_shared_directory_and_succeeds(lab: Lab) -> None:
    about = context()
    result = await run_hook(shell("echo hello > made; pwd"), about, lab.host())
    assert (result.kind, result.exit_code, result.tries) == ("ok", 0, 1)
    assert (lab.shared(about) / "made").read_text() == "hello\n"
    output = suite_dirs(lab.data_dir, about.suite_uuid).output("preparation", "stdout")
    assert output.read_text().strip() == str(lab.shared(about))


async def test_a_hook_sees_its_context_and_cannot_change_it(lab: Lab) -> None:
    about = context()
    lies = dict.fromkeys(about.variables(), "a lie") | {
        "MITOSIS_AGENT_INSTANCE": "a lie",
        "DATA_DIR": "/mnt/data",
    }
    result = await run_hook(shell(DUMP, envs=lies), about, lab.host(MITO_PASSWORD="secret"))
    assert result.is_ok
    env = seen(lab.shared(about))
    assert {name: env[name] for name in about.variables()} == {
        "MITOSIS_TASK_SUITE_UUID": str(about.suite_uuid),
        "MITOSIS_TASK_SUITE_NAME": "ML campaign, Übung 1",
        "MITOSIS_GROUP_NAME": "ml-team",
        "MITOSIS_WORKER_COUNT": "16",
        "MITOSIS_NODE_MANAGER_ID": str(about.manager_uuid),
    }
    assert env["MITOSIS_AGENT_INSTANCE"] == lab.marker
    assert env["DATA_DIR"] == "/mnt/data"
    assert "MITO_PASSWORD" not in env


async def test_a_failing_command_is_reported_with_code_and_end_of_stderr(lab: Lab) -> None:
    script = "i=0; while [ $i -lt 500 ]; do echo line-é-$i >&2; i=$((i+1)); done; exit 3"
    result = await run_hook(shell(script), context(), lab.host())
    assert (result.kind, result.exit_code, result.tries) == ("command", 3, 1)
    assert result.stderr_tail.endswith("line-é-499\n")
    assert "line-é-0\n" not in result.stderr_tail
    assert 3500 < len(result.stderr_tail.encode()) <= 4096
    assert "\ufffd" not in result.stderr_tail


@pytest.mark.parametrize(
    ("script", "code"), [("kill -SEGV $$", 139), ("exec no-such-program-here", 127)]
)
async def test_signals_and_missing_programs_have_the_codes_of_a_shell(
    lab: Lab, script: str, code: int
) -> None:
    result = await run_hook(shell(script), context(), lab.host())
    assert (result.kind, result.exit_code) == ("command", code)


async def test_a_command_the_kernel_will_not_start_is_a_failure_with_a_reason(lab: Lab) -> None:
    hook = msgspec.structs.replace(shell("true"), args=["true", "x" * 200_000])
    result = await run_hook(hook, context(), lab.host())
    assert (result.kind, result.exit_code) == ("command", None)
    assert "too long" in result.stderr_tail.lower()


async def test_a_hook_out_of_time_is_killed_with_everything_it_started(lab: Lab) -> None:
    script = "echo begun >&2; setsid sleep 300 & sleep 300 & wait"
    started = time.monotonic()
    result = await run_hook(shell(script, timeout="1s"), context(), lab.host())
    assert result.kind == "timeout"
    assert result.exit_code is None
    assert result.stderr_tail == "begun\n"
    assert time.monotonic() - started < 30
    assert not living(lab.marker)


async def test_a_hook_that_ignores_sigterm_is_killed_after_its_grace(lab: Lab) -> None:
    cancel = asyncio.Event()
    about = context()
    running = asyncio.create_task(
        run_hook(shell("trap '' TERM; touch begun; while :; do sleep 0.1; done"), about,
                 lab.host(), cancel)
    )  # fmt: skip
    await _until((lab.shared(about) / "begun").exists)
    cancel.set()
    assert (await running).kind == "cancelled"
    assert not living(lab.marker)


async def test_a_hook_cancelled_in_the_middle_leaves_nothing(lab: Lab) -> None:
    cancel = asyncio.Event()
    about = context()
    script = "setsid sh -c 'sleep 300' & touch begun; sleep 300"
    running = asyncio.create_task(run_hook(shell(script), about, lab.host(), cancel))
    await _until((lab.shared(about) / "begun").exists)
    assert living(lab.marker)
    cancel.set()
    result = await running
    assert result.kind == "cancelled"
    assert not living(lab.marker)


async def test_a_hook_cancelled_before_its_start_does_not_start(lab: Lab) -> None:
    cancel = asyncio.Event()
    cancel.set()
    about = context()
    result = await run_hook(shell("touch begun"), about, lab.host(), cancel)
    assert result.kind == "cancelled"
    assert not (lab.shared(about) / "begun").exists()


async def test_an_agent_that_stops_waiting_takes_the_hook_with_it(lab: Lab) -> None:
    about = context()
    running = asyncio.create_task(run_hook(shell("touch begun; sleep 300"), about, lab.host()))
    await _until((lab.shared(about) / "begun").exists)
    running.cancel()
    cancelled_at = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not living(lab.marker)
    # At once, not by the last resort: a hook's process that does not leave is killed after 20 s.
    assert time.monotonic() - cancelled_at < 15


async def test_what_a_hook_leaves_in_the_background_is_ended_with_it(lab: Lab) -> None:
    result = await run_hook(shell("setsid sleep 300 & exit 0"), context(), lab.host())
    assert result.is_ok
    assert not living(lab.marker)


async def test_a_hook_may_kill_its_launcher_but_not_escape(lab: Lab) -> None:
    """The worst it can do without a sandbox; the agent still hears of the end."""
    about = context()
    script = "touch begun; setsid sleep 300 & kill -9 $PPID; sleep 300"
    result = await run_hook(shell(script), about, lab.host())
    assert result.kind == "command"
    assert not living(lab.marker)


async def test_a_killed_process_of_the_hook_is_a_failure_and_leaves_nothing(lab: Lab) -> None:
    about = context()
    script = "cut -d' ' -f4 /proc/$PPID/stat > pid; touch begun; sleep 300"
    running = asyncio.create_task(run_hook(shell(script), about, lab.host()))
    await _until((lab.shared(about) / "begun").exists)
    os.kill(int((lab.shared(about) / "pid").read_text()), signal.SIGKILL)
    result = await running
    assert (result.kind, result.exit_code) == ("command", None)
    assert "killed" in result.stderr_tail
    await _until(lambda: not living(lab.marker))


async def test_a_cleanup_that_fails_is_degraded_and_never_raises(lab: Lab) -> None:
    result = await run_hook(shell("echo mess >&2; exit 9"), context("cleanup"), lab.host())
    assert (result.kind, result.exit_code, result.stderr_tail) == ("command", 9, "mess\n")


async def test_a_directory_that_cannot_be_made_is_a_result_too(lab: Lab) -> None:
    (lab.data_dir / "suites").write_text("in the way")
    result = await run_hook(shell("true"), context("cleanup"), lab.host())
    assert result.kind == "command"
    assert result.stderr_tail


async def test_cleanup_finds_what_preparation_left(lab: Lab) -> None:
    about = context()
    await run_hook(shell("echo 'exit 0' > cleanup.sh; chmod +x cleanup.sh"), about, lab.host())
    again = context("cleanup", about.suite_uuid)
    assert (await run_hook(shell("./cleanup.sh"), again, lab.host())).is_ok
    assert remove_suite_dirs(lab.data_dir, about.suite_uuid)
    assert not suite_dirs(lab.data_dir, about.suite_uuid).root.exists()


@needs_root
async def test_a_privileged_agent_runs_hooks_as_the_sandboxed_user(
    lab: Lab, sandbox: Sandbox
) -> None:
    about = context()
    script = (
        f"{DUMP}; id -u > uid; id -G > groups; echo loud > /dev/stderr;"
        "grep NoNewPrivs /proc/self/status > nnp; ulimit -c > core"
    )
    hook = shell(script, envs={"LD_PRELOAD": "/nonexistent/evil.so", "TOKEN": "s3cret"})
    ours = os.getgroups()
    os.setgroups([1, 2])
    try:
        result = await run_hook(hook, about, lab.host(sandbox=sandbox, HOME="/root", USER="root"))
    finally:
        os.setgroups(ours)
    assert result.is_ok, result
    shared = lab.shared(about)
    assert (shared / "uid").read_text().strip() == str(NOBODY)
    assert (shared / "groups").read_text().split() == [str(NOBODY)]
    assert (shared / "nnp").read_text().split() == ["NoNewPrivs:", "1"]
    assert (shared / "core").read_text().strip() == "0"
    assert "loud" in result.stderr_tail
    env = seen(shared)
    assert (env["HOME"], env["TOKEN"]) == (str(shared), "s3cret")
    assert "USER" not in env
    # The user's environment is not left on the disk, nor used before the drop.
    assert not suite_dirs(lab.data_dir, about.suite_uuid).environment("preparation").exists()


@needs_root
async def test_a_users_preload_is_never_loaded_by_a_privileged_process(
    lab: Lab, sandbox: Sandbox
) -> None:
    """The loader complains on standard error in whichever process it meets the variable."""
    hook = shell("true", envs={"LD_PRELOAD": "/nonexistent/evil.so"})
    result = await run_hook(hook, context(), lab.host(sandbox=sandbox))
    assert result.is_ok
    # env, sh: both after the drop. A third complaint would be python as root.
    assert 1 <= result.stderr_tail.count("evil.so") <= 2


@needs_root
async def test_a_sandboxed_hook_cannot_touch_what_is_the_agents(lab: Lab, sandbox: Sandbox) -> None:
    (lab.data_dir / "identity.json").write_text(json.dumps({"token": "x"}))
    (lab.data_dir / "identity.json").chmod(0o600)
    script = (
        "cat ../../../identity.json && exit 1; ls .. && exit 1; touch ../x && exit 1;"
        "kill -9 $PPID && exit 1; exit 0"
    )
    result = await run_hook(shell(script), context(), lab.host(sandbox=sandbox))
    assert result.is_ok, result


@needs_root
async def test_a_sandboxed_hook_out_of_time_is_killed_whole(lab: Lab, sandbox: Sandbox) -> None:
    hook = shell("setsid sleep 300 & sleep 300", timeout="1s")
    result = await run_hook(hook, context(), lab.host(sandbox=sandbox))
    assert result.kind == "timeout"
    assert not living(lab.marker)


async def _until(condition) -> None:
    await asyncio.to_thread(wait_until, condition, within_s=30)
