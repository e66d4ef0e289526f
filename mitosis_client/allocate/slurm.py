"""Slurm's own commands as functions: sbatch, squeue, scancel. Nothing here decides anything.

Output is asked for in forms made for programs, every command has a deadline, and each failure is a
SchedulerError. A job carries the allocation in its name and a submission's token in its comment,
so an allocator that starts again finds its jobs.
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from mitosis_client.allocate.values import Job, Phase
from mitosis_client.errors import (
    SchedulerMissing,
    SchedulerRefused,
    SchedulerTimedOut,
    SchedulerUnclear,
)

COMMAND_S: Final = 60.0
_SEPARATOR: Final = "|"
# A reason may hold anything, so it stands last.
_FIELDS: Final = ("JobID", "State", "TimeUsed", "TimeLeft", "exit_code", "Comment", "Reason")
_COMMENT: Final = "mitosis:"
_NO_TIMES: Final = frozenset({"UNLIMITED", "NOT_SET", "INVALID", "N/A", ""})

_WAITING: Final = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
                             "SPECIAL_EXIT", "RESV_DEL_HOLD"})  # fmt: skip
_ENDING: Final = frozenset({"COMPLETING", "STAGE_OUT", "SIGNALING"})
_ENDED: Final = frozenset({"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED",
                           "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
                           "TIMEOUT"})  # fmt: skip


# Variables by which Slurm's commands would show less, or make more, than we ask for.
_MISLEADING: Final = ("SQUEUE_", "SCANCEL_", "SBATCH_ARRAY_INX", "SBATCH_CLUSTERS", "SBATCH_WAIT",
                      "SLURM_CLUSTERS")  # fmt: skip


class Slurm:
    """The jobs of one allocation of this user."""

    def __init__(
        self, job_name: str, env: Mapping[str, str], *, command_s: float = COMMAND_S
    ) -> None:
        self.job_name = job_name
        self._env = {name: value for name, value in env.items() if not name.startswith(_MISLEADING)}
        self._command_s = command_s

    def jobs(self) -> tuple[Job, ...]:
        """All that Slurm remembers, ended ones for minutes. Raises SchedulerError."""
        form = ",".join(f"{field}:{_SEPARATOR}" for field in _FIELDS)
        text = self._run(
            ["squeue", "--me", "--noheader", "--states=all", f"--name={self.job_name}",
             f"--Format={form}"],
        )  # fmt: skip
        return tuple(read_job(line) for line in text.splitlines() if line.strip())

    def submit(self, flags: Sequence[str], script: str, token: str) -> str:
        """The new job's id. After SchedulerTimedOut and SchedulerUnclear there may be one too."""
        command = self.submit_command(flags, token)
        # "id" or "id;cluster".
        answer = self._run(command, stdin=script).strip().partition(";")[0]
        if not answer.isdecimal():
            raise SchedulerUnclear(f"sbatch did not answer with a job id: {answer[:100]!r}")
        return answer

    def submit_command(self, flags: Sequence[str], token: str) -> list[str]:
        """Ours come last, so that none of them can be changed."""
        return [
            "sbatch", *flags, "--parsable", "--no-requeue", "--export=NONE",
            f"--job-name={self.job_name}", f"--comment={_COMMENT}{token}",
        ]  # fmt: skip

    def cancel_waiting(self, job: str) -> None:
        """Nothing happens to a job that runs by now, or is gone."""
        self._run(["scancel", "--state=PENDING", job])

    def _run(self, command: Sequence[str], *, stdin: str = "") -> str:
        program = command[0]
        try:
            done = subprocess.run(  # noqa: S603 - the words are ours, the flags the operator's
                command,
                input=stdin,
                env=self._env,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=self._command_s,
            )
        except FileNotFoundError as error:
            raise SchedulerMissing(
                f"{program} is not on the PATH: is this a Slurm host?"
            ) from error
        except OSError as error:
            raise SchedulerRefused(f"{program} could not be started: {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            message = f"{program} gave no answer within {self._command_s:.0f} s"
            raise SchedulerTimedOut(message) from error
        if done.returncode != 0:
            said = " ".join(done.stderr.split())[-500:]
            # "Socket timed out on send/recv": the controller may have done it nevertheless.
            is_unknown = done.returncode < 0 or "timed out" in said
            kind = SchedulerTimedOut if is_unknown else SchedulerRefused
            raise kind(said or f"{program} ended with status {done.returncode}")
        return done.stdout


def read_job(line: str) -> Job:
    """One line of squeue. Raises SchedulerUnclear."""
    parts = line.strip().split(_SEPARATOR, len(_FIELDS) - 1)
    if len(parts) != len(_FIELDS):
        raise SchedulerUnclear(f"squeue said something else than asked for: {line[:200]!r}")
    id_, state, used, left, status, comment, reason = (part.strip() for part in parts)
    phase = phase_of(state)
    reason = reason.removesuffix(_SEPARATOR)
    return Job(
        id=id_,
        token=comment.removeprefix(_COMMENT) if comment.startswith(_COMMENT) else "",
        phase=phase,
        state=state,
        reason="" if reason in ("None", "(null)") else reason,
        ran_s=seconds_of(used) or 0,
        left_s=None if phase is Phase.WAITING else seconds_of(left),
        exit_code=_exit_code(status),
    )


def phase_of(state: str) -> Phase:
    """A word that we do not know is taken for a running job: it counts, and is left alone."""
    if state in _WAITING:
        return Phase.WAITING
    if state in _ENDING:
        return Phase.ENDING
    return Phase.ENDED if state in _ENDED else Phase.RUNNING


def seconds_of(text: str) -> int | None:
    """`[days-][hours:]minutes:seconds`; None for a time that is not one."""
    if text in _NO_TIMES:
        return None
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if found is None:
        raise SchedulerUnclear(f"squeue told a time that is none: {text[:50]!r}")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _exit_code(status: str) -> int:
    """squeue shows a wait status; people know what `$?` shows."""
    if not status.isdecimal():
        return 0
    signal = int(status) & 0x7F
    return 128 + signal if signal else (int(status) >> 8) & 0xFF
