"""The script of an allocation's jobs, run by the shell with a small program as the agent."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mitosis_client.allocate.job_script import JobPlan, check_extra
from mitosis_client.allocate.values import Scope
from mitosis_client.errors import ConfigError

# Writes down its arguments and each SIGTERM; ends a moment after the first one, or by itself.
AGENT = """\
import signal, sys, time
from pathlib import Path
place = Path(sys.argv[1])
(place / "words").write_text("\\n".join(sys.argv[2:]))
def told(*_):
    with (place / "terms").open("a") as terms:
        terms.write("term\\n")
signal.signal(signal.SIGTERM, told)
(place / "ready").touch()
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    if (place / "end").exists():
        sys.exit(int((place / "end").read_text()))
    time.sleep(0.02)
"""


class Running:
    def __init__(self, place: Path, plan: JobPlan) -> None:
        self.place = place
        self.work = place / "work dir"
        self.process = subprocess.Popen(
            ["/bin/sh"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "17"},
            start_new_session=True,
            text=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(plan.script())
        self.process.stdin.close()
        self._wait_for((place / "ready").exists)

    def terms(self) -> int:
        file = self.place / "terms"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def wait_for_terms(self, number: int) -> None:
        self._wait_for(lambda: self.terms() >= number)

    def end(self, status: int) -> int:
        """Let the agent end; the status of the job."""
        part = self.place / "end.part"
        part.write_text(str(status))
        part.rename(self.place / "end")
        return self.process.wait(timeout=20)

    def _wait_for(self, check: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not check():
            assert time.monotonic() < deadline
            assert self.process.poll() is None
            time.sleep(0.02)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "agent.py").write_text(AGENT)
    running = Running(tmp_path, plan_of(tmp_path))
    yield running
    if running.process.poll() is None:
        os.killpg(running.process.pid, signal.SIGKILL)
    running.process.wait()
    assert running.process.stderr is not None
    running.process.stderr.close()


def plan_of(place: Path, **changes: object) -> JobPlan:
    members = {
        "name": "night",
        "coordinator": "https://m.example/$HOME",
        "token_file": place / "a token",
        "log_dir": place,
        "agent_command": ("python3", str(place / "agent.py"), str(place)),
        "scope": Scope(groups=("ann", "bob's"), tags=("gpu",)),
        "time_s": 3600,
        "drain_s": 300,
        "agent_dir": str(place / "work dir"),
        **changes,
    }
    return JobPlan(**members)  # type: ignore[arg-type]


def test_the_warning_of_slurm_reaches_the_agent_once(job: Running) -> None:
    os.kill(job.process.pid, signal.SIGUSR1)
    job.wait_for_terms(1)
    os.kill(job.process.pid, signal.SIGUSR1)
    assert job.end(0) == 0
    # A second one would have meant: leave at once, whatever runs.
    assert job.terms() == 1


def test_a_cancelled_job_asks_the_agent_once_and_waits_for_it(job: Running) -> None:
    os.killpg(job.process.pid, signal.SIGTERM)  # as scancel does: every process of the job
    job.wait_for_terms(1)
    assert job.end(0) == 0
    assert job.terms() == 1


def test_the_directory_goes_with_an_agent_that_ended_well(job: Running) -> None:
    [place] = job.work.iterdir()
    words = (job.place / "words").read_text().splitlines()
    given = dict(zip(words[1::2], words[2::2], strict=True))
    assert words[0] == "run"
    assert given == {
        "--coordinator": "https://m.example/$HOME",
        "--token-file": str(job.place / "a token"),
        "--groups": "ann,bob's",
        "--tags": "gpu",
        "--labels": "allocation:night,slurm-job:17",
        "--instance": "slurm-night-17",
        "--data-dir": str(place),
        "--grace": "280s",
        "--log-format": "json",
    }
    assert place.stat().st_mode & 0o777 == 0o700
    assert job.end(0) == 0
    assert list(job.work.iterdir()) == []


def test_the_directory_of_an_agent_that_failed_is_kept_and_its_status_told(job: Running) -> None:
    assert job.end(9) == 9
    assert len(list(job.work.iterdir())) == 1


@pytest.mark.parametrize(("outbox", "status"), [(False, 0), (True, 143)])
def test_an_agent_told_before_it_could_listen_has_ended_well(
    job: Running, outbox: bool, status: int
) -> None:
    if outbox:
        [place] = job.work.iterdir()
        (place / "outbox.sqlite").touch()
    assert job.end(143) == status


def test_flags_say_when_to_warn_and_ours_cannot_be_overruled(tmp_path: Path) -> None:
    flags = plan_of(tmp_path, time_s=3601, partition="fast", extra=("--mem=8G", "-c4")).flags()
    assert flags[:2] == ["--mem=8G", "-c4"]
    assert {"--time=61", "--signal=B:USR1@300", "--nodes=1", "--partition=fast"} <= set(flags)


@pytest.mark.parametrize(
    "flag",
    ["--array=1-5", "--arr=1-5", "-a1-5", "--job-name=x", "-Jx", "--wrap=ls", "--export=ALL",
     "--signal=TERM", "-t5", "-Mother", "--clusters=all", "script.sh", "", "--", "--mem 8G"],
)  # fmt: skip
def test_flags_that_would_break_the_count_are_refused(flag: str) -> None:
    with pytest.raises(ConfigError, match="sbatch: "):
        check_extra(flag)


@pytest.mark.parametrize(
    "flag",
    ["--mem=8G", "-c16", "--exclusive", "--gres=gpu:1", "--qos=low", "--account=a", "-Aproj",
     "--nodelist=n1", "--begin=20:00"],
)  # fmt: skip
def test_other_flags_are_the_operators_business(flag: str) -> None:
    check_extra(flag)
