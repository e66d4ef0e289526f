"""The planning core of an allocation: a picture in, actions out. No I/O, no clock of its own.

Rules: never more jobs than `max_jobs`, whatever is unknown counted as there; waiting jobs are
cancelled when there are too many, running ones are never killed; nothing is submitted during a
pause. Driven by `loop`, which tells what became of each submission.
"""

import math
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from mitosis_client.allocate.pause import Pause
from mitosis_client.allocate.values import (
    Action,
    Agent,
    Cancel,
    Dismiss,
    Forget,
    Job,
    Limits,
    Note,
    Phase,
    Picture,
    Submit,
)

EARLY_S: Final = 60  # how much sooner than asked for Slurm may warn a job


def new_token() -> str:
    return uuid4().hex[:12]


class Allocation:
    """What is remembered from look to look. Everything in it may be lost: a restart adopts."""

    def __init__(self, limits: Limits, make_token: Callable[[], str] = new_token) -> None:
        self.limits = limits
        self._make_token = make_token
        self._pause = Pause(limits.first_pause_s, limits.max_pause_s)
        self._alive: dict[str, Job] = {}
        self._judged: set[str] | None = None  # None: before the first look
        self._asked: set[str] = set()  # jobs that we cancelled or told to leave
        self._idle_since: dict[str, float] = {}
        self._doubtful: dict[str, float] = {}
        self._is_stuck = False

    def wanted(self, backlog: int) -> int:
        """How many jobs the backlog is worth."""
        limits = self.limits
        return min(limits.max_jobs, max(limits.min_jobs, math.ceil(backlog / limits.tasks_per_job)))

    def decide(self, picture: Picture, now: float) -> list[Action]:
        """What to do now. Called once per look."""
        actions = [*self._bury(picture, now), *self._forget(picture)]
        self._watch_idle(picture, now)
        self._settle_doubts(picture, now)
        alive = [job for job in picture.jobs if job.is_alive]
        staying = [job for job in alive if self._stays(job, picture.agents.get(job.id))]
        wanted = self.wanted(picture.backlog)
        missing = wanted - len(staying) - len(self._doubtful)
        if missing > 0:
            actions += self._grow(missing, len(alive), picture, staying, now)
        elif len(staying) > wanted:
            actions += self._shrink(len(staying) - wanted, staying, picture, now)
        # Near the end of its walltime an idle agent only keeps its node from others.
        leaving = [job for job in alive if job not in staying]
        return [*actions, *self._dismiss(self._idlers(leaving, now), picture)]

    def pause_left_s(self, now: float) -> float:
        return self._pause.left_s(now)

    @property
    def pause_reason(self) -> str:
        return self._pause.reason

    def submission_failed(self, reason: str, now: float) -> Note:
        """The batch system refused: nothing was made."""
        return self._back_off("submit_failed", reason, now)

    def submission_unknown(self, token: str, reason: str, now: float) -> Note:
        """No answer: the job may exist, so it counts until it is seen or cannot come any more."""
        self._doubtful[token] = now + self.limits.doubt_s
        return self._back_off("submit_unknown", reason, now)

    def _bury(self, picture: Picture, now: float) -> list[Action]:
        """Judge what has ended since the last look; one back-off however many died together."""
        seen = {job.id for job in picture.jobs}
        over = [job for job in picture.jobs if not job.is_alive]
        # What ended before the first look may have been cancelled by an earlier life of ours.
        judged = {job.id for job in over} if self._judged is None else self._judged
        vanished = [job for id_, job in self._alive.items() if id_ not in seen]
        failed = [
            job for job in (*over, *vanished) if job.id not in judged and self._has_failed(job)
        ]
        self._judged = {job.id for job in over}
        self._alive = {job.id: job for job in picture.jobs if job.is_alive}
        self._asked &= seen
        self._pause.proven([id_ for id_, job in self._alive.items() if self._has_grown(job)])
        if not failed:
            return []
        last = failed[-1]
        return [self._back_off("job_died", _story(last, len(failed)), now, job=last.id)]

    def _has_failed(self, job: Job) -> bool:
        """Died young: not asked by us to go, nor by Slurm's warning, which may come early."""
        is_warned = job.left_s is not None and job.left_s <= self.limits.drain_s + EARLY_S
        has_drained = is_warned and job.state == "COMPLETED"
        return job.id not in self._asked and not has_drained and job.ran_s < self.limits.young_s

    def _has_grown(self, job: Job) -> bool:
        return job.phase is Phase.RUNNING and job.ran_s >= self.limits.young_s

    def _back_off(self, event: str, reason: str, now: float, *, job: str = "") -> Note:
        running = [job.id for job in self._alive.values() if job.phase is Phase.RUNNING]
        seconds = self._pause.begin(reason, now, running)
        return Note(event, f"{reason}; no new jobs for {seconds:.0f} s", job)

    def _forget(self, picture: Picture) -> list[Action]:
        """A job that the batch system calls ended has no processes left."""
        is_over = {job.id for job in picture.jobs if not job.is_alive}
        return [
            Forget(id_, agent.manager) for id_, agent in picture.agents.items() if id_ in is_over
        ]

    def _watch_idle(self, picture: Picture, now: float) -> None:
        idle = {
            id_
            for id_, agent in picture.agents.items()
            if agent.is_online and agent.is_idle and id_ in self._alive
        }
        self._idle_since = {id_: self._idle_since.get(id_, now) for id_ in idle}

    def _settle_doubts(self, picture: Picture, now: float) -> None:
        arrived = {job.token for job in picture.jobs}
        self._doubtful = {
            token: until
            for token, until in self._doubtful.items()
            if token not in arrived and until > now
        }

    def _stays(self, job: Job, agent: Agent | None) -> bool:
        """Whether it will take more work; one that leaves is replaced while it still finishes."""
        if job.phase is Phase.ENDING:
            return False
        is_draining = job.left_s is not None and job.left_s <= self.limits.drain_s
        if job.phase is Phase.RUNNING and is_draining:
            return False
        return agent is None or not agent.is_leaving

    def _grow(
        self, missing: int, alive: int, picture: Picture, staying: list[Job], now: float
    ) -> list[Action]:
        limits = self.limits
        room = limits.max_jobs - alive - len(self._doubtful)
        if self._pause.left_s(now) > 0 or room <= 0:
            return []
        stuck = self._idlers(staying, now)
        if stuck and picture.backlog:
            return self._say_stuck(len(stuck))
        self._is_stuck = False
        count = min(missing, room, limits.max_submits)
        return [Submit(self._make_token()) for _ in range(count)]

    def _say_stuck(self, count: int) -> list[Action]:
        """More of the same would idle as well, and cost as much."""
        if self._is_stuck:
            return []
        self._is_stuck = True
        text = (
            f"{count} agents idle although tasks wait: see `mitosis explain`; no more are started"
        )
        return [Note("agents_idle", text)]

    def _shrink(
        self, surplus: int, staying: list[Job], picture: Picture, now: float
    ) -> list[Action]:
        """The newest waiting jobs first, then agents that have had nothing to do for long."""
        waiting = [job for job in staying if job.phase is Phase.WAITING]
        cancelled = sorted(waiting, key=lambda job: _number(job.id), reverse=True)[:surplus]
        # Who has the least time left is missed the least.
        idle = sorted(
            self._idlers(staying, now),
            key=lambda job: (math.inf if job.left_s is None else job.left_s, _number(job.id)),
        )
        self._asked |= {job.id for job in cancelled}
        return [
            *(Cancel(job.id) for job in cancelled),
            *self._dismiss(idle[: surplus - len(cancelled)], picture),
        ]

    def _idlers(self, jobs: list[Job], now: float) -> list[Job]:
        """Those whose agents have had nothing to do for long."""
        return [
            job
            for job in jobs
            if job.phase is Phase.RUNNING
            and job.id in self._idle_since
            and now - self._idle_since[job.id] >= self.limits.idle_s
        ]

    def _dismiss(self, jobs: list[Job], picture: Picture) -> list[Action]:
        """Once: the coordinator remembers the wish until the agent hears it."""
        self._asked |= {job.id for job in jobs}
        agents = [(job.id, picture.agents[job.id]) for job in jobs]
        return [Dismiss(id_, agent.manager) for id_, agent in agents if not agent.is_leaving]


def _story(job: Job, count: int) -> str:
    others = f" (and {count - 1} more)" if count > 1 else ""
    if job.is_alive:
        return f"job {job.id} is gone and nobody says why{others}"
    why = f"{job.state}" + (f", {job.reason}" if job.reason else "")
    return f"job {job.id} ended after {job.ran_s} s: {why}, exit code {job.exit_code}{others}"


def _number(job: str) -> int:
    return int(job) if job.isdecimal() else 0
