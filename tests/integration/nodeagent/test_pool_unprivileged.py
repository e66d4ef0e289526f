"""An agent without privileges: it runs tasks, says what it cannot do, uses what is delegated."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from nodeagent.pool.cgroup_files import empty_group, remove_group, write_once
from nodeagent.pool.host import find_hierarchies
from tests.fakes.pool_lab import PYTHON

NOBODY = 65534

AGENT = """
import asyncio, json, os, sys
from mitosis_protocol.specs import WorkerSchedule
from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import LimitsUnenforceable
from tests.fakes.pool_lab import PYTHON, running_pool

DAEMON = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\ntime.sleep(600)"

async def main():
    facts = {"uid": os.getuid()}
    async with running_pool() as lab:
        facts["sandbox"] = lab.pool.sandbox.reason
        for name, limits in (("memory", ResourceLimits(memory=64 << 20)),
                             ("pids", ResourceLimits(pids=20))):
            try:
                lab.pool.check(WorkerSchedule(worker_count=1), limits)
                facts[name] = "enforced"
            except LimitsUnenforceable as error:
                facts[name] = str(error)
        worker = await lab.spawn()
        facts["true"] = await worker.run("true")
        facts["daemon"] = await worker.run(PYTHON, "-S", "-c", DAEMON)
        facts["stubborn"] = await worker.shell(
            "trap '' TERM; while :; do sleep 0.1; done", timeout_s=0.3, grace_s=0.3)
        facts["suicide"] = await worker.shell("kill -9 $PPID; sleep 600")
        facts["peek"] = await worker.shell("cat /proc/$PPID/environ /proc/$PPID/maps")
        if facts["memory"] == "enforced":
            hog = "x = b'x' * 200_000_000"
            facts["oom"] = await worker.run(
                PYTHON, "-S", "-c", hog, limits={"memory": 64 << 20})
        facts["last"] = await worker.run("true")
        facts["privileges"] = await worker.shell("grep -q 'NoNewPrivs:.*1' /proc/self/status")
        lab.pool.kill(worker.key)
        facts["exit"] = (await lab.exit_of(worker.key)).signal
    print("FACTS" + json.dumps(facts))

asyncio.run(main())
"""


def interpreter() -> str:
    """One of our version that another user may execute, or a skip."""
    if os.getuid() != 0:
        return sys.executable
    probe = [PYTHON, "-c", "import sys; print(sys.version_info[:2])"]
    version = subprocess.run(probe, user=NOBODY, capture_output=True, text=True, check=False).stdout
    if version.strip() != str(sys.version_info[:2]):
        pytest.skip("no interpreter of this version that another user may execute")
    return PYTHON


def run_agent(tmp_path: Path, *, groups: list[Path]) -> dict[str, Any]:
    enter = "".join(f"echo 0 > {group}/cgroup.procs; " for group in groups)
    user = [shutil.which("setpriv") or "", f"--reuid={NOBODY}", f"--regid={NOBODY}"]
    drop = [*user, "--clear-groups"] if os.getuid() == 0 else []
    path = ":".join([str(Path.cwd()), *(entry for entry in sys.path if entry)])
    done = subprocess.run(
        ["sh", "-c", f'{enter}exec "$@"', "sh", *drop, interpreter(), "-c", AGENT],
        env={"PATH": os.defpath, "PYTHONPATH": path, "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FACTS")]
    assert lines, done.stderr[-4000:]
    facts: dict[str, Any] = json.loads(lines[0].removeprefix("FACTS"))
    return facts


def check_common_facts(facts: dict[str, Any]) -> None:
    assert facts["uid"] != 0
    assert "own user" in facts["sandbox"]
    for name in ("true", "daemon", "last", "privileges"):
        assert (facts[name]["status"], facts[name]["survivors"]) == (0, 0)
    assert facts["stubborn"]["cause"] == "timed_out"
    assert facts["suicide"]["status"] == 9
    assert facts["peek"]["status"] == 1 << 8  # of the launcher that came after the suicide
    assert facts["exit"] == 9


def test_without_any_rights_tasks_run_and_limits_are_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    facts = run_agent(tmp_path, groups=[])
    check_common_facts(facts)
    if os.getuid() == 0:
        for name in ("memory", "pids"):
            assert f"a limit of {name} cannot be enforced" in facts[name]
            assert "Permission denied" in facts[name]


@pytest.fixture
def delegated() -> Iterator[list[Path]]:
    """A group in every hierarchy that belongs to the other user, as an administrator makes it."""
    if os.getuid() != 0:
        pytest.skip("delegating a cgroup needs root")
    made: list[Path] = []
    name = f"delegated-{uuid4().hex[:8]}"
    for hierarchy in find_hierarchies():
        group = hierarchy.own_group / name
        group.mkdir()
        made.append(group)
        if "cpuset" in hierarchy.controllers and hierarchy.version == 1:
            for file in ("cpuset.mems", "cpuset.cpus"):
                write_once(group / file, (group.parent / file).read_text())
        for path in (group, *group.glob("cgroup.*"), group / "tasks"):
            if path.exists():
                os.chown(path, NOBODY, NOBODY)
    yield made
    for group in made:
        assert empty_group(group, within_s=20) == 0
        remove_group(group)


@pytest.mark.cgroup
def test_a_delegated_subtree_gives_an_unprivileged_agent_its_limits(
    tmp_path: Path, delegated: list[Path]
) -> None:
    if not delegated:
        pytest.skip("no cgroups on this host")
    facts = run_agent(tmp_path, groups=delegated)
    check_common_facts(facts)
    assert (facts["memory"], facts["pids"]) == ("enforced", "enforced")
    assert facts["oom"]["was_oom"]
    assert [path for group in delegated for path in group.glob("mitosis-*")] == []
