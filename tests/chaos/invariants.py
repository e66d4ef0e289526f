"""What must be true whatever happened: history, wire and disk compared with the database.

Each check returns the violations it found, in words. ALWAYS holds at every moment, SETTLED once
the faults are over and the queue is empty. `test_invariants.py` plants a violation of each.
"""

import io
import tarfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import psycopg

from tests.chaos.history import Acknowledged, Execution, by_task

# What a violation counts as in the verdict of a run.
LOST, DOUBLED, STUCK, DRIFT = "lost", "doubled", "stuck", "drift"
# How long after its lease a dead runner may still hold something.
REAP_SLACK_S: Final = 30.0
COMPLETE_SLACK_S: Final = 60.0
# One command notices its end up to a tick after the other began to tick.
TICK_S: Final = 0.25

WATCH_OUTCOMES = """
CREATE TABLE chaos_rewritten (task_id bigint, what text);
CREATE FUNCTION chaos_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_rewritten VALUES (OLD.id, TG_OP);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_changed AFTER UPDATE ON archived_tasks FOR EACH ROW
    WHEN ((OLD.outcome, OLD.attempt_id, OLD.op_id, OLD.exit_status)
        IS DISTINCT FROM (NEW.outcome, NEW.attempt_id, NEW.op_id, NEW.exit_status))
    EXECUTE FUNCTION chaos_note();
CREATE TRIGGER chaos_deleted AFTER DELETE ON archived_tasks FOR EACH ROW
    EXECUTE FUNCTION chaos_note();
"""


@dataclass
class World:
    """Everything that is known from outside, and a connection to ask the inside."""

    connection: psycopg.Connection[Any]
    tasks: Mapping[str, Acknowledged] = field(default_factory=dict)
    suites: Mapping[str, str] = field(default_factory=dict)
    cancelled: Collection[str] = ()
    executions: list[Execution] = field(default_factory=list)
    accepted_attempts: list[int] = field(default_factory=list)
    lease_s: float = 120.0
    # The bytes of an object in the artifacts bucket; None: absent.
    read_object: Callable[[str], bytes | None] = lambda _key: None

    def rows(self, sql: str, **params: Any) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            return cursor.execute(sql, params).fetchall()

    def of_kind(self, *kinds: str) -> dict[str, Acknowledged]:
        return {uuid: task for uuid, task in self.tasks.items() if task.kind in kinds}


def nothing_acknowledged_is_missing(world: World) -> list[str]:
    rows = world.rows(
        "SELECT q.uuid FROM unnest(%(uuids)s::uuid[]) AS q (uuid)"
        " WHERE NOT EXISTS (SELECT FROM active_tasks t WHERE t.uuid = q.uuid)"
        " AND NOT EXISTS (SELECT FROM archived_tasks t WHERE t.uuid = q.uuid)",
        uuids=list(world.tasks),
    )
    return [f"task {uuid} was acknowledged and is gone" for (uuid,) in rows]


def nothing_is_there_twice(world: World) -> list[str]:
    both = world.rows("SELECT a.uuid FROM active_tasks a JOIN archived_tasks b USING (uuid)")
    labels = world.rows(
        "SELECT label, count(*) FROM (SELECT labels FROM active_tasks"
        " UNION ALL SELECT labels FROM archived_tasks) t, unnest(t.labels) AS label"
        " WHERE label LIKE 'chaos-%%' GROUP BY label HAVING count(*) > 1"
    )
    return [f"task {uuid} is active and archived" for (uuid,) in both] + [
        f"{label} was submitted once and is there {count} times" for label, count in labels
    ]


def one_end_was_accepted_per_task(world: World) -> list[str]:
    """As coordinators said on the wire: one `ok` at most that ended it, to the archived attempt."""
    said = Counter(world.accepted_attempts)
    rows = world.rows(
        "SELECT a.id, a.task_id, t.attempt_id, t.uuid FROM task_attempts a"
        " LEFT JOIN archived_tasks t ON t.id = a.task_id WHERE a.id = ANY (%(ids)s)",
        ids=list(said),
    )
    ends: Counter[int] = Counter()
    found = []
    for attempt_id, task_id, archived_attempt, uuid in rows:
        ends[task_id] += said[attempt_id]
        if archived_attempt != attempt_id:
            found.append(f"attempt {attempt_id} was accepted, {archived_attempt} is archived")
        if ends[task_id] > 1:
            found.append(f"{ends[task_id]} ends of task {uuid} were accepted")
    return found


def no_outcome_was_rewritten(world: World) -> list[str]:
    rows = world.rows("SELECT task_id, what FROM chaos_rewritten")
    return [f"{what} of the archived task {task_id}" for task_id, what in rows]


def counters_equal_reality(world: World) -> list[str]:
    """One statement, one snapshot: deltas and rows are written in the same transactions."""
    rows = world.rows(
        "WITH said AS (SELECT suite_id, sum(total) AS total, sum(pending) AS pending,"
        "  sum(succeeded) AS succeeded, sum(failed) AS failed, sum(cancelled) AS cancelled"
        "  FROM suite_count_deltas GROUP BY suite_id),"
        " active AS (SELECT suite_id, count(*) AS n FROM active_tasks GROUP BY suite_id),"
        " ended AS (SELECT suite_id, count(*) AS n, count(*) FILTER (WHERE outcome = 0) AS ok,"
        "  count(*) FILTER (WHERE outcome IN (1, 2, 3, 5)) AS bad,"
        "  count(*) FILTER (WHERE outcome = 4) AS stopped FROM archived_tasks GROUP BY suite_id)"
        " SELECT s.id, said.total, said.pending, said.succeeded, said.failed, said.cancelled,"
        "  coalesce(a.n, 0) + coalesce(e.n, 0), coalesce(a.n, 0), coalesce(e.ok, 0),"
        "  coalesce(e.bad, 0), coalesce(e.stopped, 0)"
        " FROM task_suites s LEFT JOIN said ON said.suite_id = s.id"
        " LEFT JOIN active a ON a.suite_id = s.id LEFT JOIN ended e ON e.suite_id = s.id"
    )
    found = []
    for suite_id, *numbers in rows:
        said = tuple(int(number or 0) for number in numbers[:5])
        real = tuple(int(number) for number in numbers[5:])
        if said != real:
            found.append(f"suite {suite_id} counts {said}, the tables hold {real}")
    return found


def no_dead_runner_holds_anything(world: World) -> list[str]:
    rows = world.rows(
        "SELECT t.uuid, t.runner_id FROM active_tasks t"
        " LEFT JOIN runner_leases l ON l.runner_id = t.runner_id WHERE t.state >= 2"
        " AND coalesce(l.expires_at, '-infinity')"
        " < clock_timestamp() - make_interval(secs => %(slack)s)",
        slack=world.lease_s + REAP_SLACK_S,
    )
    return [f"task {uuid} is held by runner {runner}, whose lease is over" for uuid, runner in rows]


def one_engagement_per_manager(world: World) -> list[str]:
    rows = world.rows(
        "SELECT manager_id, count(*) FROM suite_assignments WHERE released_at IS NULL"
        " GROUP BY manager_id HAVING count(*) > 1"
    )
    return [f"manager {manager} has {count} engagements" for manager, count in rows]


def no_attempt_is_left_open(world: World) -> list[str]:
    rows = world.rows(
        "SELECT a.id FROM task_attempts a LEFT JOIN active_tasks t ON t.id = a.task_id"
        " WHERE a.ending IS NULL AND (t.id IS NULL OR t.attempt_id <> a.id OR t.runner_id IS NULL)"
    )
    return [f"attempt {attempt_id} is open and over" for (attempt_id,) in rows]


def complete_means_nothing_is_active(world: World) -> list[str]:
    rows = world.rows(
        "SELECT s.uuid FROM task_suites s WHERE s.state = 2"
        " AND EXISTS (SELECT FROM active_tasks t WHERE t.suite_id = s.id)"
    )
    return [f"suite {uuid} is complete and has active tasks" for (uuid,) in rows]


def done_suites_are_complete(world: World) -> list[str]:
    rows = world.rows(
        "SELECT s.uuid FROM task_suites s WHERE s.state IN (0, 1) AND s.submit_count > 0"
        " AND s.blocked_at IS NULL AND NOT EXISTS ("
        "  SELECT FROM active_tasks t WHERE t.suite_id = s.id)"
        " AND greatest(s.last_task_submitted_at, ("
        "  SELECT max(e.ended_at) FROM archived_tasks e WHERE e.suite_id = s.id))"
        " < clock_timestamp() - make_interval(secs => %(slack)s)",
        slack=COMPLETE_SLACK_S,
    )
    return [f"suite {uuid} has nothing to do and is not complete" for (uuid,) in rows]


def every_task_has_ended(world: World) -> list[str]:
    rows = world.rows("SELECT uuid, state, runner_id, failures FROM active_tasks")
    return [f"task {uuid}: phase {s}, runner {r}, failures {n}" for uuid, s, r, n in rows]


def success_was_executed(world: World) -> list[str]:
    """The disk has a line of that attempt that says it ended with 0."""
    ended = {(run.uuid, run.attempt) for run in world.executions if run.status == 0}
    rows = world.rows(
        "SELECT uuid::text, attempt, suite_id IS NULL FROM archived_tasks WHERE outcome = 0"
        " AND uuid = ANY (%(uuids)s::uuid[])",
        uuids=list(world.tasks),
    )
    return [
        f"attempt {attempt} of task {uuid} succeeded and never ran to its end"
        for uuid, attempt, is_alone in rows
        # The wire of existing workers does not tell the command which attempt it is.
        if (uuid, attempt) not in ended and not (is_alone and (uuid, 0) in ended)
    ]


def outcomes_are_what_commands_did(world: World) -> list[str]:
    rows = world.rows(
        "SELECT uuid::text, outcome, failures FROM archived_tasks"
        " WHERE uuid = ANY (%(uuids)s::uuid[])",
        uuids=list(world.tasks),
    )
    expected = {"fail": {1}}
    found = []
    for uuid, outcome, failures in rows:
        kind = world.tasks[uuid].kind
        # 4: its suite was cancelled. A task that lost its runners too often is given up.
        may_be = expected.get(kind, {0}) | {4} | ({1} if failures >= 2 else set())
        if uuid in world.cancelled:
            may_be = {4}
        if outcome not in may_be:
            found.append(f"task {uuid} ({kind}) ended with outcome {outcome}")
    return found


def stopped_suites_never_overlap(world: World) -> list[str]:
    """`on_partition: stop`: two attempts of one task were never alive at the same time."""
    strict = {uuid for uuid, policy in world.suites.items() if policy == "stop"}
    wanted = {uuid for uuid, task in world.tasks.items() if task.suite in strict}
    found = []
    for uuid, runs in by_task(run for run in world.executions if run.uuid in wanted).items():
        spans = sorted(
            (run.began, run.seen, run.attempt)
            for run in runs
            if run.began is not None and run.seen is not None
        )
        for (_, seen, first), (began, _, second) in pairwise(spans):
            if began < seen - TICK_S:
                found.append(f"attempts {first} and {second} of task {uuid} overlapped")
    return found


def results_belong_to_the_committed_attempt(world: World) -> list[str]:
    rows = world.rows(
        "SELECT t.uuid::text, t.attempt, a.key FROM archived_tasks t LEFT JOIN artifacts a"
        " ON a.task_id = t.id AND a.attempt = t.attempt WHERE t.outcome = 0"
        " AND t.uuid = ANY (%(uuids)s::uuid[])",
        uuids=list(world.of_kind("artifact")),
    )
    found = []
    for uuid, attempt, key in rows:
        if key is None:
            found.append(f"attempt {attempt} of task {uuid} succeeded without its result")
        elif not key.startswith(f"{uuid}/{attempt}/"):
            found.append(f"the result of task {uuid}, attempt {attempt}, lies at {key}")
        elif _mark_in(world.read_object(key)) != f"{uuid} {attempt}":
            found.append(f"{key} is not what attempt {attempt} of task {uuid} wrote")
    return found


def _mark_in(archive: bytes | None) -> str | None:
    if archive is None:
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            file = opened.extractfile("result/mark")
            return None if file is None else file.read().decode().strip()
    except (KeyError, tarfile.TarError):
        return None


Check = Callable[[World], list[str]]
# Number in the plan, what a violation counts as, the check.
ALWAYS: Final[tuple[tuple[str, str, Check], ...]] = (
    ("I1", LOST, nothing_acknowledged_is_missing),
    ("I2", DOUBLED, nothing_is_there_twice),
    ("I3", DOUBLED, one_end_was_accepted_per_task),
    ("I4", DOUBLED, no_outcome_was_rewritten),
    ("I5", DRIFT, counters_equal_reality),
    ("I7", DOUBLED, one_engagement_per_manager),
    ("I8", DRIFT, no_attempt_is_left_open),
    ("I9", DRIFT, complete_means_nothing_is_active),
    ("I11", DOUBLED, stopped_suites_never_overlap),
)
SETTLED: Final[tuple[tuple[str, str, Check], ...]] = (
    ("liveness", STUCK, every_task_has_ended),
    ("I6", STUCK, no_dead_runner_holds_anything),
    ("I9", STUCK, done_suites_are_complete),
    ("I10", LOST, success_was_executed),
    ("outcome", DRIFT, outcomes_are_what_commands_did),
    ("I12", DRIFT, results_belong_to_the_committed_attempt),
)


@dataclass(frozen=True)
class Violation:
    number: str
    counts_as: str
    text: str

    def __str__(self) -> str:
        return f"{self.number} ({self.counts_as}): {self.text}"


def violations(world: World, checks: tuple[tuple[str, str, Check], ...]) -> list[Violation]:
    return [
        Violation(number, counts_as, text)
        for number, counts_as, check in checks
        for text in check(world)
    ]
