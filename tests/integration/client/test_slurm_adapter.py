"""Slurm's commands as the allocator sees them when they are slow, absent, refusing or confused.

The commands are small programs of our own here; the real ones are in tests/e2e.
"""

from pathlib import Path

import pytest

from mitosis_client.allocate.slurm import Slurm, phase_of, read_job, seconds_of
from mitosis_client.allocate.values import Phase
from mitosis_client.errors import (
    SchedulerMissing,
    SchedulerRefused,
    SchedulerTimedOut,
    SchedulerUnclear,
)


def commands(folder: Path, **scripts: str) -> dict[str, str]:
    for name, script in scripts.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "SQUEUE_PARTITION": "other", "SLURM_CONF": "x"}


def test_lines_of_squeue_become_jobs(tmp_path: Path) -> None:
    lines = (
        "41|RUNNING|1-02:03:04|UNLIMITED|0|mitosis:abc|None|\\n"
        "42|PENDING|0:00|1:00:00|0|mitosis:def|Resources|x|\\n"
        "43|FAILED|0:11|0:49|768|(null)|NonZeroExitCode|\\n"
    )
    one, two, three = Slurm("m", commands(tmp_path, squeue=f'printf "{lines}"')).jobs()
    assert (one.id, one.token, one.phase, one.ran_s, one.left_s, one.reason) == (
        *("41", "abc", Phase.RUNNING, 93784, None, ""),
    )
    assert (two.phase, two.token, two.left_s, two.reason) == (
        *(Phase.WAITING, "def", None, "Resources|x"),
    )
    assert (three.phase, three.exit_code, three.token) == (Phase.ENDED, 3, "")


def test_a_state_nobody_knows_counts_as_running_and_a_signal_as_a_shell_shows_it() -> None:
    assert phase_of("SOMETHING_NEW") is Phase.RUNNING
    assert phase_of("COMPLETING") is Phase.ENDING
    assert read_job("1|FAILED|0:01|0:01|9|x|y|").exit_code == 137


def test_variables_that_would_hide_jobs_do_not_reach_the_commands(tmp_path: Path) -> None:
    env = commands(tmp_path, squeue='echo "1|RUNNING|0:01|0:01|0|c|$SQUEUE_PARTITION$SLURM_CONF|"')
    [job] = Slurm("m", env).jobs()
    assert job.reason == "x"


def test_the_script_goes_in_by_stdin_and_the_id_comes_out(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    env = commands(tmp_path, sbatch=f'echo "$@" > {seen}; cat >> {seen}; echo "77;cluster"')
    assert Slurm("mitosis-x", env).submit(["--mem=1G"], "#!/bin/sh\ntrue\n", "tok") == "77"
    words, *script = seen.read_text().splitlines()
    assert words.startswith("--mem=1G ")
    assert "--job-name=mitosis-x --comment=mitosis:tok" in words
    assert script == ["#!/bin/sh", "true"]


def test_every_failure_has_its_own_error(tmp_path: Path) -> None:
    env = commands(
        tmp_path,
        sbatch='echo "sbatch: error: Invalid account" >&2; exit 1',
        squeue="echo what?",
        scancel="exec sleep 60",
    )
    slurm = Slurm("m", env, command_s=0.3)
    with pytest.raises(SchedulerRefused, match="Invalid account"):
        slurm.submit([], "", "t")
    with pytest.raises(SchedulerUnclear, match="what"):
        slurm.jobs()
    with pytest.raises(SchedulerTimedOut, match="scancel"):
        slurm.cancel_waiting("1")
    with pytest.raises(SchedulerUnclear, match="job id"):
        Slurm("m", commands(tmp_path, sbatch="echo submitted")).submit([], "", "t")
    with pytest.raises(SchedulerMissing, match="sbatch is not on the PATH"):
        Slurm("m", {"PATH": str(tmp_path / "nowhere")}).submit([], "", "t")


@pytest.mark.parametrize(
    "script",
    ['echo "sbatch: error: Socket timed out on send/recv operation" >&2; exit 1', "kill -9 $$"],
)
def test_a_submission_that_may_have_arrived_is_not_called_refused(
    tmp_path: Path, script: str
) -> None:
    with pytest.raises(SchedulerTimedOut):
        Slurm("m", commands(tmp_path, sbatch=script)).submit([], "", "t")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0:07", 7), ("12:00", 720), ("1:00:01", 3601), ("2-00:00:00", 172800), ("INVALID", None)],
)
def test_times_of_slurm(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


def test_a_time_that_is_none_is_an_error() -> None:
    with pytest.raises(SchedulerUnclear):
        seconds_of("soon")
