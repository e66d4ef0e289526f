"""Looks, decides, acts, tells; again and again until told to stop.

A look that fails changes nothing: without the whole picture no job is submitted, cancelled or
dismissed. Stopping leaves the jobs alone: the next start adopts them, and each ends by itself with
its walltime at the latest.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from mitosis_client.allocate.demand import read_agents, read_backlog
from mitosis_client.allocate.job_script import JobPlan
from mitosis_client.allocate.places import Place
from mitosis_client.allocate.plan import Allocation
from mitosis_client.allocate.slurm import Slurm
from mitosis_client.allocate.values import (
    Action,
    Cancel,
    Dismiss,
    Forget,
    Note,
    Phase,
    Picture,
    Submit,
)
from mitosis_client.client import Client
from mitosis_client.errors import (
    ApiError,
    AuthenticationFailed,
    CoordinatorUnreachable,
    NotFound,
    SchedulerError,
    SchedulerMissing,
    SchedulerTimedOut,
    SchedulerUnclear,
    UnexpectedAnswer,
)

# Events go to the caller as a name, a sentence for people and members for programs.
Tell = Callable[[str, str, dict[str, object]], None]

_TRANSIENT_STATUS: Final = 429


class Allocator:
    """One allocation, from the first look to the last."""

    def __init__(
        self, *, client: Client, slurm: Slurm, plan: JobPlan, place: Place,
        allocation: Allocation, tell: Tell,
    ) -> None:  # fmt: skip
        self._client = client
        self._slurm = slurm
        self._plan = plan
        self._place = place
        self._allocation = allocation
        self._tell = tell
        self._told = ""
        self._complaints: set[str] = set()
        self.stopping = threading.Event()

    def run(self, poll_s: float) -> None:
        """Until `stopping`. Raises what no waiting would cure: a refused login, no Slurm here."""
        while not self.stopping.is_set():
            began = time.monotonic()
            self._look_once()
            self.stopping.wait(max(0.0, poll_s - (time.monotonic() - began)))
        self._tell("stopped", "stopped; the jobs stay and are adopted by the next start", {})

    def look(self) -> Picture:
        """Jobs first: one that ends between the two is then seen alive, and kept for now."""
        jobs = self._slurm.jobs()
        return Picture(
            backlog=read_backlog(self._client, self._plan.scope),
            jobs=jobs,
            agents=read_agents(self._client, self._plan.scope, self._plan.name),
        )

    def decide(self) -> list[Action]:
        """What would be done now, for a dry run."""
        picture = self.look()
        self._report(picture)
        return self._allocation.decide(picture, time.monotonic())

    def _look_once(self) -> None:
        try:
            picture = self.look()
        except (CoordinatorUnreachable, UnexpectedAnswer, ApiError, SchedulerError) as error:
            if not is_passing(error):
                raise
            self._report_once("look_failed", f"nothing is changed: {error}", {"reason": str(error)})
            return
        self._carry_out(self._allocation.decide(picture, time.monotonic()))
        self._report(picture)
        self._place.prune_logs()

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if self.stopping.is_set():
                return
            if isinstance(action, Submit):
                if not self._submit(action.token):
                    return  # the rest would meet the same
            else:
                self._do(action)

    def _submit(self, token: str) -> bool:
        try:
            job = self._slurm.submit(self._plan.flags(), self._plan.script(), token)
        except (SchedulerTimedOut, SchedulerUnclear) as error:
            self._note(self._allocation.submission_unknown(token, str(error), time.monotonic()))
            return False
        except SchedulerMissing:
            raise
        except SchedulerError as error:
            self._note(self._allocation.submission_failed(str(error), time.monotonic()))
            return False
        self._tell("submitted", f"submitted job {job}", {"job": job})
        return True

    def _do(self, action: Cancel | Dismiss | Forget | Note) -> None:
        """What fails here is decided again at the next look."""
        try:
            match action:
                case Cancel(job=job):
                    self._slurm.cancel_waiting(job)
                    self._tell("cancelled", f"cancelled waiting job {job}", {"job": job})
                case Dismiss(job=job, manager=manager):
                    self._client.fleet.shutdown(manager)
                    text = f"told the idle agent of job {job} to leave"
                    self._tell("dismissed", text, {"job": job, "manager": manager})
                case Forget(job=job, manager=manager):
                    self._forget(job, manager)
                case Note():
                    self._note(action)
        except (AuthenticationFailed, SchedulerMissing):
            raise
        except (CoordinatorUnreachable, ApiError, SchedulerError) as error:
            self._complain(f"{type(action).__name__.lower()}: {error}")

    def _complain(self, text: str) -> None:
        if text not in self._complaints:
            self._complaints.add(text)
            self._tell("action_failed", text, {"reason": text})

    def _forget(self, job: str, manager: str) -> None:
        try:
            self._client.fleet.revoke(manager)
        except NotFound:
            return  # somebody else did
        text = f"job {job} has ended; its agent is no longer registered"
        self._tell("forgotten", text, {"job": job, "manager": manager})

    def _note(self, note: Note) -> None:
        text, members = note.text, {"reason": note.text}
        if note.job:
            log = self._place.logs / f"{note.job}.log"
            said = self._place.log_tail(note.job)
            text += f". {log} " + (f"ends with: {said}" if said else "is empty or not here yet")
            members |= {"job": note.job, "log": said}
        self._tell(note.event, text, dict(members))

    def _report(self, picture: Picture) -> None:
        allocation, now = self._allocation, time.monotonic()
        counts = {phase.value: 0 for phase in Phase if phase is not Phase.ENDED}
        for job in picture.jobs:
            if job.is_alive:
                counts[job.phase.value] += 1
        wanted = allocation.wanted(picture.backlog)
        online = sum(agent.is_online for agent in picture.agents.values())
        text = (
            f"{picture.backlog} tasks are left; {wanted} jobs wanted, {counts['running']} run, "
            f"{counts['waiting']} wait; {online} agents online"
        )
        members: dict[str, object] = {
            "backlog": picture.backlog, "wanted": wanted, "jobs": counts, "agents": online,
        }  # fmt: skip
        if allocation.pause_left_s(now) > 0:
            text += f"; paused: {allocation.pause_reason}"
            members["paused"] = allocation.pause_reason
        self._report_once("status", text, members)

    def _report_once(self, event: str, text: str, members: dict[str, object]) -> None:
        """Only what has changed since it was last said."""
        if text != self._told:
            self._told = text
            self._tell(event, text, members)


def is_passing(error: Exception) -> bool:
    """Whether it may be gone at the next look."""
    if isinstance(error, ApiError):
        return error.retryable or error.status >= 500 or error.status == _TRANSIENT_STATUS
    return not isinstance(error, SchedulerMissing)
