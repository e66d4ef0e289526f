"""`mitosis allocate slurm` on a real Slurm: agents come with the backlog and leave with it."""

import json
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mitosis_stack.process import Child, ChildSpec, spawn
from tests.debian_setup import SLURM, missing
from tests.e2e.agent_lab import BRISK, AgentLab
from tests.e2e.cli_lab import MITOSIS, Shell
from tests.e2e.cluster import Cluster
from tests.e2e.slurm_lab import SlurmLab
from tests.harness import TestServices
from tests.integration.workers.live_user import eventually

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slurm,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing(SLURM)), reason=f"no {', '.join(missing(SLURM))} here"),
]


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with Cluster(tmp_path_factory.mktemp("slurm"), environment=BRISK) as cluster:
        found = AgentLab(cluster)
        yield found
        found.close()


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmLab]:
    with SlurmLab() as running:
        yield running


@pytest.fixture(scope="module")
def shell(lab: AgentLab) -> Shell:
    home = lab.cluster.root / "home"
    home.mkdir()
    name, password = lab.cluster.admin
    found = Shell(home, lab.cluster.url, name, password)
    found.login()
    return found


class Allocator:
    """The command as a process; each test has an allocation and agents of its own."""

    def __init__(self, lab: AgentLab, slurm: SlurmLab, shell: Shell) -> None:
        self.lab, self.slurm, self.shell = lab, slurm, shell
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.directory = slurm.root / self.name
        self.agent_dir = slurm.root / f"{self.name}-agents"
        self._log = slurm.root / "log" / f"{self.name}.json"

    def start(self, *flags: str) -> Child:
        words = (
            *("allocate", "slurm", "-o", "json", "--poll", "1s", "--name", self.name),
            *("--dir", str(self.directory), "--agent-dir", str(self.agent_dir)),
            *("--tags", self.name, *flags),
        )
        env = {**self.shell.environment, **self.slurm.environment}
        return spawn(ChildSpec(name=self.name, argv=(*MITOSIS, *words), log=self._log, env=env))

    @contextmanager
    def running(self, *flags: str) -> Iterator[Child]:
        child = self.start(*flags)
        try:
            yield child
            assert child.poll() is None, self._log.read_text()
        finally:
            child.stop()
            print(self._log.read_text())
        assert child.poll() == 0

    def events(self, kind: str) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [one for one in found if one["event"] == kind]

    def jobs(self) -> dict[str, str]:
        """Of this allocation; number and state."""
        text = self.slurm.run("squeue", "--noheader", "--states=all", "--format=%A %T",
                              f"--name=mitosis-{self.name}")  # fmt: skip
        found = dict(line.split() for line in text.splitlines())
        alive = [state for state in found.values() if state in {"PENDING", "RUNNING", "COMPLETING"}]
        assert len(alive) <= 2, found
        return found

    def managers(self) -> list[dict[str, Any]]:
        return [one for one in self.lab.managers() if self.name in one["tags"]]

    def all_gone(self) -> bool:
        over = all(state in {"COMPLETED", "CANCELLED"} for state in self.jobs().values())
        return over and not self.managers()


@pytest.fixture
def allocator(lab: AgentLab, slurm: SlurmLab, shell: Shell) -> Iterator[Allocator]:
    found = Allocator(lab, slurm, shell)
    yield found
    slurm.run("scancel", "--full", f"--name=mitosis-{found.name}")


def test_agents_come_as_jobs_with_the_backlog_and_leave_with_it(
    allocator: Allocator, lab: AgentLab, slurm: SlurmLab, open_dir: Path
) -> None:
    flags = ("--max-jobs", "2", "--tasks-per-job", "20", "--idle", "1s", "--time", "10m")
    first = allocator.start(*flags)
    eventually(lambda: allocator.events("status"), within_s=60)
    assert allocator.jobs() == {}
    suite = lab.suite(tags=[allocator.name], workers=2)
    gate = open_dir / "gate"
    wait = f"touch {open_dir}/$MITO_TASK_UUID; while ! test -e {gate}; do sleep 0.1; done"
    tasks = lab.submit(suite, [("sh", "-c", wait)] * 60)

    # Sixty tasks would be worth three jobs; two are allowed.
    eventually(lambda: list(allocator.jobs().values()) == ["RUNNING"] * 2, within_s=60)
    eventually(lambda: len(list(open_dir.iterdir())) >= 3, within_s=60, what="both agents work")
    job = next(iter(allocator.jobs()))
    token = (allocator.directory / "token").read_text()
    assert (allocator.directory / "token").stat().st_mode & 0o777 == 0o600
    script = slurm.run("scontrol", "write", "batch_script", job, "-")
    assert "--token-file" in script
    assert token not in script + slurm.run("scontrol", "show", "job", job)

    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: first.poll() is not None)
    with allocator.running(*flags):
        second = len(allocator.events("status"))
        eventually(lambda: len(allocator.events("status")) > second, within_s=60)
        gate.touch()
        info = lab.wait_complete(suite)
        eventually(allocator.all_gone, within_s=60, what="agents leave")
    assert len(allocator.jobs()) == 2  # the second life adopted the jobs of the first
    assert info["succeeded_tasks"] == 60
    assert all(task["attempt"] == 1 for task in lab.tasks(suite))
    assert len(tasks) == 60
    assert set(allocator.jobs().values()) == {"COMPLETED"}
    assert list(allocator.agent_dir.iterdir()) == []  # nothing stays on the nodes


def test_agents_finish_what_runs_before_their_walltime_ends_and_are_replaced(
    allocator: Allocator, lab: AgentLab, open_dir: Path
) -> None:
    suite = lab.suite(tags=[allocator.name], workers=2, prefetch=2)
    flags = ("--max-jobs", "2", "--tasks-per-job", "1000", "--idle", "1s")
    # Slurm looks at walltimes every 30 s and warns up to a minute early: so within half a minute.
    with allocator.running(*flags, "--time", "2m", "--drain", "110s"):
        script = f"echo run >> {open_dir}/$MITO_TASK_UUID; sleep 2"
        lab.submit(suite, [("sh", "-c", script)] * 200)
        eventually(lambda: "COMPLETED" in allocator.jobs().values(), within_s=100, what="drained")
        [first, *_] = allocator.jobs()
        eventually(
            lambda: any(one["assigned_suite_uuid"] for one in allocator.managers()), within_s=60,
            what="a replacement works",
        )  # fmt: skip
        lab.post(f"/suites/{suite}/cancel", {"reason": "seen", "cancel_running_tasks": True})
        eventually(allocator.all_gone, within_s=60, what="agents leave")
    log = (allocator.directory / "logs" / f"{first}.log").read_text()
    assert '"signal": "SIGTERM", "is_forced": false' in log
    assert first not in {one["job"] for one in allocator.events("dismissed")}
    assert allocator.events("job_died") == []
    ended = [task for task in lab.tasks(suite) if task["outcome"] == "succeeded"]
    assert ended
    for task in ended:
        # What ran was finished and not killed: no failure was charged, nothing was run twice.
        assert task["failures"] == 0
        assert (open_dir / task["uuid"]).read_text() == "run\n"


def test_a_refused_submission_is_told_and_not_repeated_at_once(allocator: Allocator) -> None:
    with allocator.running("--max-jobs", "2", "--min-jobs", "1", "--partition", "broken"):
        [event] = eventually(lambda: allocator.events("submit_failed"), within_s=60)
        assert "partition not available" in event["reason"]
        status = eventually(
            lambda: [one for one in allocator.events("status") if "paused" in one], within_s=30
        )
        assert "partition not available" in status[0]["paused"]
    assert len(allocator.events("submit_failed")) == 1
    assert allocator.jobs() == {}


def test_jobs_that_die_young_stop_the_submitting_and_say_why(allocator: Allocator) -> None:
    with allocator.running(
        *("--max-jobs", "2", "--min-jobs", "2", "--setup", "echo no such module; exit 7")
    ):
        [event] = eventually(lambda: allocator.events("job_died"), within_s=60)
        assert "exit code 7" in event["reason"]
        assert event["log"] == "no such module"
    # The second may still have been starting when the first one's death was told.
    eventually(lambda: list(allocator.jobs().values()) == ["FAILED"] * 2, within_s=60)


def test_a_dry_run_shows_and_does_nothing(allocator: Allocator, shell: Shell) -> None:
    words = ("allocate", "slurm", "--max-jobs", "3", "--min-jobs", "2", "--dry-run")
    env = {**allocator.slurm.environment, "PATH": os.environ["PATH"]}
    done = shell.run(*words, "--name", allocator.name, "-o", "json", **env)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout.splitlines()[-1])
    assert plan["submit"] == 2
    assert plan["command"][0] == "sbatch"
    assert allocator.jobs() == {}
    assert not (shell.home / "config/mitosis/allocations").exists()


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (["--min-jobs", "9"], "min-jobs"),
        (["--time", "1m", "--drain", "2m"], "time"),
        (["--sbatch=--array=1-9"], "sbatch"),
        (["--sbatch=--arr=1-9"], "sbatch"),
        (["--name", "a b"], "name"),
        (["--poll", "1h"], "poll"),
    ],
)
def test_wrong_flags_are_named(shell: Shell, flags: list[str], field: str) -> None:
    done = shell.run("allocate", "slurm", "--max-jobs", "3", "--dry-run", *flags)
    assert done.returncode == 2
    assert f"mitosis: {field}: " in done.stderr
