"""The planning core of `mitosis allocate`: how many jobs, which ones go, and when it waits."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mitosis_client.allocate.plan import Allocation
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
from mitosis_client.errors import ConfigError


def job(number: int, phase: Phase = Phase.RUNNING, **more: object) -> Job:
    states = {
        Phase.WAITING: "PENDING",
        Phase.RUNNING: "RUNNING",
        Phase.ENDING: "COMPLETING",
        Phase.ENDED: "FAILED",
    }
    known = {"ran_s": 100, "left_s": 3000, "state": states[phase], **more}
    return Job(id=str(number), token=f"t{number}", phase=phase, **known)  # type: ignore[arg-type]


def agent(number: int, *, idle: bool = False, **more: bool) -> tuple[str, Agent]:
    return str(number), Agent(manager=f"m{number}", is_online=True, is_idle=idle, **more)


def picture(backlog: int, *jobs: Job, agents: tuple[tuple[str, Agent], ...] = ()) -> Picture:
    return Picture(backlog=backlog, jobs=jobs, agents=dict(agents))


def allocation(numbers: Iterator[int] | None = None, **limits: object) -> Allocation:
    known = {"max_jobs": 4, "tasks_per_job": 10, "first_pause_s": 30, "max_pause_s": 200, **limits}
    drawn = count(1) if numbers is None else numbers
    return Allocation(Limits(**known), lambda: f"new{next(drawn)}")  # type: ignore[arg-type]


def submits(actions: list[Action]) -> int:
    return sum(isinstance(action, Submit) for action in actions)


@pytest.mark.parametrize(
    ("backlog", "wanted"), [(0, 0), (1, 1), (10, 1), (11, 2), (39, 4), (100_000, 4)]
)
def test_the_backlog_is_worth_so_many_jobs(backlog: int, wanted: int) -> None:
    assert submits(allocation().decide(picture(backlog), 0)) == wanted


def test_the_least_number_is_kept_without_any_task() -> None:
    assert submits(allocation(min_jobs=2).decide(picture(0), 0)) == 2
    with pytest.raises(ConfigError, match="min-jobs"):
        allocation(min_jobs=9)


def test_jobs_of_an_earlier_life_are_adopted() -> None:
    known = (job(1), job(2, Phase.WAITING))
    assert submits(allocation().decide(picture(100, *known), 0)) == 2


def test_jobs_that_leave_are_replaced_but_count_against_the_limit() -> None:
    leaving = (job(1, left_s=200), job(2, Phase.ENDING), job(3))
    found = allocation().decide(picture(100, *leaving, agents=(agent(3, is_leaving=True),)), 0)
    assert submits(found) == 1


def test_surplus_waiting_jobs_are_cancelled_newest_first_and_running_ones_are_not() -> None:
    jobs = (job(8), job(9, Phase.WAITING), job(11, Phase.WAITING), job(10, Phase.WAITING))
    found = allocation().decide(picture(15, *jobs, agents=(agent(8, idle=True),)), 0)
    assert found == [Cancel("11"), Cancel("10")]


def test_only_agents_that_were_idle_for_long_are_dismissed() -> None:
    planner = allocation(idle_s=60)
    jobs = (job(1), job(2, left_s=1000), job(3, left_s=2000))
    agents = (agent(1), agent(2, idle=True), agent(3, idle=True))
    seen = picture(1, *jobs, agents=agents)
    assert planner.decide(seen, 0) == []
    assert planner.decide(seen, 59) == []
    assert planner.decide(seen, 60) == [Dismiss("2", "m2"), Dismiss("3", "m3")]


def test_an_idle_agent_near_its_walltime_leaves_even_while_tasks_wait() -> None:
    planner = allocation(idle_s=60, max_jobs=1)
    seen = picture(9, job(1, left_s=200), agents=(agent(1, idle=True),))
    assert planner.decide(seen, 0) == []
    assert planner.decide(seen, 60) == [Dismiss("1", "m1")]
    told = picture(9, job(1, left_s=100), agents=(agent(1, idle=True, is_leaving=True),))
    assert planner.decide(told, 120) == []


def test_an_agent_that_worked_in_between_is_not_idle_for_long() -> None:
    planner = allocation(idle_s=60)
    idle = picture(0, job(1), agents=(agent(1, idle=True),))
    planner.decide(idle, 0)
    planner.decide(picture(0, job(1), agents=(agent(1),)), 30)
    assert planner.decide(idle, 61) == []
    assert planner.decide(idle, 122) == [Dismiss("1", "m1")]


def test_the_agent_of_an_ended_job_is_forgotten() -> None:
    over = job(1, Phase.ENDED, state="TIMEOUT", ran_s=3600)
    assert allocation().decide(picture(0, over, agents=(agent(1),)), 0) == [Forget("1", "m1")]


def test_jobs_that_die_young_make_it_wait_longer_each_time_and_say_why() -> None:
    planner = allocation(max_jobs=2)
    now, pauses = 0.0, []
    planner.decide(picture(100), now)
    for number in range(1, 6):
        dead = job(number, Phase.ENDED, ran_s=2, reason="NonZeroExitCode", exit_code=3)
        [note] = planner.decide(picture(100, dead), now)
        assert isinstance(note, Note)
        assert (note.event, note.job) == ("job_died", str(number))
        assert "FAILED, NonZeroExitCode, exit code 3" in note.text
        pauses.append(planner.pause_left_s(now))
        assert planner.decide(picture(100, dead), now + pauses[-1] - 1) == []
        now += pauses[-1]
        assert submits(planner.decide(picture(100, dead), now)) == 2
    assert pauses == [30, 60, 120, 200, 200]


def test_many_deaths_at_once_are_one_failure() -> None:
    planner = allocation()
    planner.decide(picture(100), 0)
    dead = [job(number, Phase.ENDED, ran_s=1) for number in range(1, 5)]
    [note] = planner.decide(picture(100, *dead), 1)
    assert "and 3 more" in note.text  # type: ignore[union-attr]
    assert planner.pause_left_s(1) == 30


def test_a_job_that_came_after_the_failure_and_lives_ends_the_pause() -> None:
    planner = allocation(max_jobs=8)
    planner.decide(picture(100, job(1)), 0)
    dead = job(2, Phase.ENDED, ran_s=1)
    planner.decide(picture(100, job(1), dead), 0)
    # The older one lives on, which proves nothing about the next.
    planner.decide(picture(100, job(1), dead), 29)
    assert planner.pause_left_s(29) == 1
    planner.decide(picture(100, job(1), dead, job(3, ran_s=60)), 29)
    assert planner.pause_left_s(29) == 0
    planner.decide(picture(100, job(1), dead, job(3), job(4, Phase.ENDED, ran_s=1)), 40)
    assert planner.pause_left_s(40) == 30


def test_jobs_we_ended_and_old_age_are_no_failures() -> None:
    planner = allocation(idle_s=0)
    seen = picture(
        0, job(1, Phase.WAITING, ran_s=0), job(2, ran_s=9), agents=(agent(2, idle=True),)
    )
    assert planner.decide(seen, 0) == [Cancel("1"), Dismiss("2", "m2")]
    over = picture(
        0,
        job(1, Phase.ENDED, state="CANCELLED", ran_s=0),
        job(2, Phase.ENDED, state="COMPLETED", ran_s=9),
        job(3, Phase.ENDED, state="TIMEOUT", ran_s=3600),
    )
    assert planner.decide(over, 1) == []
    assert planner.pause_left_s(1) == 0


def test_a_short_job_that_was_warned_of_its_end_and_left_well_is_no_failure() -> None:
    planner = allocation(drain_s=300)
    planner.decide(picture(10), 0)
    left = job(1, Phase.ENDED, state="COMPLETED", ran_s=20, left_s=350)
    assert submits(planner.decide(picture(10, left), 0)) == 1
    crashed = job(2, Phase.ENDED, state="FAILED", ran_s=20, left_s=350)
    assert submits(planner.decide(picture(10, left, crashed), 0)) == 0
    left_early = job(3, Phase.ENDED, state="COMPLETED", ran_s=20, left_s=3000)
    planner = allocation(drain_s=300)
    planner.decide(picture(10), 0)
    assert submits(planner.decide(picture(10, left_early), 0)) == 0


def test_a_job_that_vanishes_young_is_a_failure() -> None:
    planner = allocation()
    planner.decide(picture(10, job(1, ran_s=5)), 0)
    [note] = planner.decide(picture(10), 1)
    assert "nobody says why" in note.text  # type: ignore[union-attr]


def test_what_ended_before_the_first_look_is_not_judged() -> None:
    planner = allocation()
    dead = job(1, Phase.ENDED, ran_s=0, state="CANCELLED")
    assert submits(planner.decide(picture(10, dead), 0)) == 1
    assert submits(planner.decide(picture(10, dead), 1)) == 1


def test_a_refused_submission_makes_it_wait() -> None:
    planner = allocation()
    planner.decide(picture(10), 0)
    assert "no such account" in planner.submission_failed("no such account", 0).text
    assert planner.decide(picture(10), 29) == []
    assert planner.pause_reason == "no such account"
    assert submits(planner.decide(picture(10), 30)) == 1


def test_a_submission_without_an_answer_counts_until_it_cannot_come_any_more() -> None:
    planner = allocation(max_jobs=1, doubt_s=300)
    planner.submission_unknown("lost", "no answer", 0)
    assert planner.decide(picture(100), 299) == []
    assert submits(planner.decide(picture(100), 300)) == 1
    planner.submission_unknown("found", "no answer", 300)
    arrived = Job(id="7", token="found", phase=Phase.WAITING, state="PENDING")
    assert planner.decide(picture(100, arrived), 400) == []
    assert planner.decide(picture(0, arrived), 401) == [Cancel("7")]


def test_a_submission_in_doubt_takes_room_beside_jobs_that_leave() -> None:
    planner = allocation(max_jobs=2)
    planner.submission_unknown("lost", "no answer", 0)
    assert planner.decide(picture(100, job(1, left_s=200)), 60) == []


def test_no_more_agents_are_started_while_ours_idle_beside_waiting_tasks() -> None:
    planner = allocation(idle_s=60)
    stuck = picture(100, job(1), agents=(agent(1, idle=True),))
    planner.decide(picture(0, job(1), agents=(agent(1, idle=True),)), 0)
    [note] = planner.decide(stuck, 60)
    assert isinstance(note, Note)
    assert "explain" in note.text
    assert planner.decide(stuck, 61) == []
    assert submits(planner.decide(picture(100, job(1), agents=(agent(1),)), 62)) == 3


class World:
    """A batch system that does as it likes, and an allocator that is killed now and then."""

    def __init__(self, max_jobs: int) -> None:
        self.max_jobs = max_jobs
        self.jobs: dict[str, Job] = {}
        self.late: list[tuple[str, float]] = []  # submitted, not answered, not there yet
        self.numbers = count(1)
        self.tokens = count(1)  # no life of the allocator draws one of an earlier life again
        self.now = 0.0
        self.restart()

    def restart(self) -> None:
        self.arrive()
        self.planner = allocation(self.tokens, max_jobs=self.max_jobs, tasks_per_job=1, idle_s=0)

    def look(self, backlog: int, answer: str) -> None:
        agents = tuple(
            agent(int(one.id), idle=int(one.id) % 2 == 0)
            for one in self.jobs.values()
            if one.phase is Phase.RUNNING
        )
        seen = picture(backlog, *self.jobs.values(), agents=agents)
        for action in self.planner.decide(seen, self.now):
            if isinstance(action, Submit):
                if answer == "refused":
                    self.planner.submission_failed("refused", self.now)
                    break
                if answer == "lost":
                    self.late.append((action.token, self.now))
                    self.planner.submission_unknown(action.token, "lost", self.now)
                    break
                self._add(action.token)
            elif isinstance(action, Cancel):
                assert self.jobs[action.job].phase is Phase.WAITING
                self._change(action.job, Phase.ENDED)
        self.check()

    def wait(self, seconds: int) -> None:
        """What was submitted arrives within the time of doubt."""
        self.now += seconds
        if any(self.now >= since + 299 for _, since in self.late):
            self.arrive()

    def arrive(self) -> None:
        while self.late:
            self._add(self.late.pop()[0])
        self.check()

    def check(self) -> None:
        alive = sum(one.is_alive for one in self.jobs.values())
        assert alive + len(self.late) <= self.max_jobs

    def churn(self, phase: Phase, which: int) -> None:
        alive = [id_ for id_, one in self.jobs.items() if one.is_alive]
        if alive:
            self._change(alive[which % len(alive)], phase)

    def _add(self, token: str) -> None:
        id_ = str(next(self.numbers))
        self.jobs[id_] = Job(id=id_, token=token, phase=Phase.WAITING, state="PENDING")

    def _change(self, id_: str, phase: Phase) -> None:
        old = self.jobs[id_]
        self.jobs[id_] = job(int(id_), phase, ran_s=70, left_s=1000 if int(id_) % 3 else 10)
        self.jobs[id_] = Job(**{**_members(self.jobs[id_]), "token": old.token})


def _members(one: Job) -> dict[str, object]:
    return {name: getattr(one, name) for name in one.__struct_fields__}


STEPS = st.one_of(
    st.tuples(st.just("look"), st.integers(0, 12), st.sampled_from(["ok", "refused", "lost"])),
    st.tuples(st.just("churn"), st.sampled_from(list(Phase)[1:]), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.integers(1, 400), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
)


@given(st.integers(0, 6), st.lists(STEPS, max_size=60))
def test_there_are_never_more_jobs_than_allowed(max_jobs: int, steps: list[tuple]) -> None:
    world = World(max_jobs)
    for kind, first, second in steps:
        if kind == "look":
            world.look(first, second)
        elif kind == "churn":
            world.churn(first, second)
        elif kind == "wait":
            world.wait(first)
        else:
            world.restart()
