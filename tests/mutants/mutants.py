"""Guards of the hot SQL, broken one at a time. Each must be noticed by a test.

A mutant is a text substitution in one file of tasks/sql, applied in memory through the loader.
`old` has to occur exactly `times` times, so a mutant that no longer fits its file fails loudly.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    times: int = 1


MUTANTS = (
    # --- who may report ---
    Mutant(
        "anybody may settle an attempt",
        "settle/report",
        "AND q.runner_id = coalesce(f.runner_id, f.lost_runner_id)\n",
        "AND true\n",
    ),
    Mutant(
        "an old attempt may settle the task",
        "settle/report",
        "            AND f.attempt_id = q.attempt_id\n",
        "",
    ),
    Mutant(
        "a late result of a lost attempt is refused",
        "settle/report",
        "AND q.runner_id = coalesce(f.runner_id, f.lost_runner_id)\n",
        "AND q.runner_id = f.runner_id\n",
    ),
    Mutant(
        "an abort of a lost attempt is taken",
        "settle/report",
        "            AND (q.op = 0 OR f.runner_id IS NOT NULL)\n",
        "",
    ),
    Mutant(
        "a started task may be released",
        "settle/report",
        "            AND (q.op <> 2 OR f.state = 2)\n",
        "",
    ),
    Mutant(
        "a repeated failure is charged again",
        "settle/report",
        "            AND f.last_op_id IS DISTINCT FROM q.op_id\n",
        "",
    ),
    Mutant(
        "a repeated commit is stale instead of a duplicate",
        "settle/report",
        "WHEN a.op_id = q.op_id OR",
        "WHEN false OR",
    ),
    Mutant(
        "two reports on one attempt in a batch both count",
        "settle/report",
        "    ) t\n    WHERE q.repetition = 1\n",
        "    ) t\n",
    ),
    Mutant(
        "anybody may start an attempt",
        "start",
        "            AND coalesce(f.runner_id, 0) = q.runner_id  -- not by the runner's index\n",
        "",
    ),
    Mutant(
        "an old attempt may be started",
        "start",
        "            AND f.attempt_id = q.attempt_id\n",
        "",
    ),
    Mutant(
        "anybody may finish an attempt",
        "finish",
        "            AND q.runner_id = coalesce(f.runner_id, f.lost_runner_id)\n",
        "",
    ),
    Mutant(
        "an attempt that was given up may be finished",
        "finish",
        "AND q.runner_id = coalesce(f.runner_id, f.lost_runner_id)\n",
        "AND q.runner_id = coalesce(f.runner_id, f.lost_runner_id, q.runner_id)\n",
    ),
    Mutant(
        "anybody may adopt a lost attempt",
        "adopt",
        "            AND f.lost_runner_id = q.runner_id\n",
        "",
    ),
    Mutant(
        "an attempt that was claimed again may be adopted",
        "adopt",
        "            AND f.attempt_id = q.attempt_id\n"
        "            AND f.lost_runner_id = q.runner_id\n"
        "            AND f.state = 1\n",
        "",
    ),
    # --- budgets ---
    Mutant(
        "nothing is ever charged",
        "settle/tail",
        "failures = t.failures + d.charge,",
        "failures = t.failures,",
    ),
    Mutant(
        "the budget never runs out",
        "settle/report",
        "WHEN h.failures + greatest(h.charge, h.may_retry::int) >= h.max_failures THEN 'end'",
        "WHEN false THEN 'end'",
    ),
    Mutant(
        "a lost task is charged although it was never started",
        "settle/reap",
        "CASE WHEN %(charge)s::bool AND t.started_at IS NOT NULL THEN 1 ELSE 0 END",
        "CASE WHEN %(charge)s::bool THEN 1 ELSE 0 END",
    ),
    Mutant(
        "adoption keeps the charge of the loss",
        "adopt",
        "failures = t.failures - t.lost_charge,",
        "failures = t.failures,",
    ),
    Mutant(
        "an excluded runner is not excluded",
        "settle/tail",
        "THEN t.excluded_runner_ids || d.reporter_id ELSE",
        "THEN t.excluded_runner_ids ELSE",
    ),
    # --- cancel ---
    Mutant(
        "a cancelled task may still succeed",
        "settle/report",
        "WHEN r.cancel_requested_at IS NOT NULL THEN 4\n            WHEN r.action",
        "WHEN r.action",
    ),
    Mutant(
        "a cancelled task returns to the queue",
        "settle/report",
        "            WHEN h.cancel_requested_at IS NOT NULL THEN 'end'\n            WHEN h.op = 0",
        "            WHEN h.op = 0",
    ),
    Mutant(
        "a cancelled task of a dead runner returns to the queue",
        "settle/reap",
        "            WHEN h.cancel_requested_at IS NOT NULL THEN 'end'\n",
        "",
    ),
    Mutant(
        "a cancel archives what a runner holds",
        "settle/cancel",
        "    WHERE h.state < 2\n",
        "    WHERE true\n",
    ),
    Mutant(
        "existing clients may cancel what runs",
        "settle/cancel",
        "AND (f.runner_id IS NULL OR %(held)s::bool)",
        "AND (true OR %(held)s::bool)",
    ),
    # --- leases ---
    Mutant(
        "a running lease is reaped",
        "settle/reap",
        "AND l.expires_at < clock_timestamp() - make_interval(secs => %(grace_s)s::float8)\n",
        "AND %(grace_s)s::float8 IS NOT NULL\n",
    ),
    Mutant(
        "reaping does not fence the session",
        "settle/reap",
        "SET session_epoch = r.session_epoch + 1, conn_state = 2",
        "SET conn_state = 2",
    ),
    Mutant(
        "a removed runner may still report",
        "settle/reap",
        "r.action = 'requeue' AND %(adoptable)s::bool AS is_lost",
        "r.action = 'requeue' AND (%(adoptable)s::bool OR true) AS is_lost",
    ),
    Mutant(
        "a removed runner may still report what it lost before",
        "settle/reap",
        "WHERE f.lost_runner_id = ANY (%(runner_ids)s::bigint[]) AND NOT %(adoptable)s::bool",
        "WHERE f.lost_runner_id = ANY (%(runner_ids)s::bigint[]) AND false",
    ),
    # --- claim ---
    Mutant(
        "a claim does not move the fence",
        "claim/tail",
        "attempt = t.attempt + 1,",
        "attempt = greatest(t.attempt, 1),",
    ),
    Mutant(
        "a claim leaves the door open for the runner that lost the task",
        "claim/tail",
        "attempt_id = nextval('task_attempts_id_seq'),",
        "attempt_id = coalesce(t.attempt_id, nextval('task_attempts_id_seq')),",
    ),
    Mutant(
        "a claim ignores the task's tags",
        "claim/tail",
        "AND l.tags <@ h.tags",
        "AND l.tags IS NOT NULL",
    ),
    Mutant(
        "a claim ignores exclusions",
        "claim/tail",
        "AND NOT t.excluded_runner_ids @> c.runner_ids",
        "AND c.runner_ids IS NOT NULL",
    ),
    Mutant(
        "a claim ignores the backoff",
        "claim/tail",
        "AND t.not_before <= clock_timestamp()\n            AND t.failures",
        "AND t.failures",
    ),
    Mutant(
        "a claim takes from groups that only read",
        "claim/groups",
        "gr.role >= 1 AND gr.consent = 1",
        "gr.role >= 0 AND gr.consent = 1",
    ),
    Mutant(
        "a claim takes from groups that never consented",
        "claim/groups",
        "gr.role >= 1 AND gr.consent = 1",
        "gr.role >= 1",
    ),
    Mutant(
        "an older session may claim",
        "claim/groups",
        "AND r.session_epoch = coalesce(q.session_epoch, r.session_epoch)",
        "AND coalesce(q.session_epoch, 0) >= 0",
    ),
    Mutant(
        "a runner with an ended lease may claim",
        "claim/groups",
        "        AND l.expires_at > clock_timestamp()\n",
        "",
    ),
    Mutant(
        "a stolen claim id gives the attempt away",
        "claim/tail",
        "WHERE NOT g.is_exclusive AND t.attempt_id = a.id AND t.runner_id = g.runner_id",
        "WHERE NOT g.is_exclusive AND t.attempt_id = a.id",
    ),
    Mutant(
        "two classes that share a lane are served together",
        "claim/tail",
        "WHERE e.class_ord < c.class_ord AND e.lane_nos && c.lane_nos",
        "WHERE e.class_ord < c.class_ord AND e.lane_nos = c.lane_nos",
    ),
    Mutant(
        "everything claimed in a batch goes to one runner",
        "claim/tail",
        "(SELECT width_bucket(t.id, h.ids) AS at OFFSET 0)",
        "(SELECT 1 AS at)",
    ),
    Mutant(
        "the attempts of a batch are all closed like the first",
        "settle/tail",
        "(SELECT width_bucket(a.id, c.ids) AS at OFFSET 0)",
        "(SELECT 1 AS at)",
    ),
    # --- dependencies and counters ---
    Mutant(
        "a failure releases its dependents",
        "settle/tail",
        "bool_or(NOT e.is_met) AS is_doomed",
        "bool_or(NOT e.is_met) AND false AS is_doomed",
    ),
    Mutant(
        "a task that ended before falls again",
        "settle/tail",
        "        AND (SELECT count(*) FROM active_tasks t WHERE t.id = d.task_id) > 0\n),",
        "),",
    ),
    Mutant(
        "an edge below a falling task may be newer than the snapshot",
        "settle/tail",
        "            SELECT c.id, c.dependents FROM child c JOIN doom u ON u.task_id = c.id\n",
        "            SELECT c.id, 0 FROM child c WHERE false\n",
    ),
    Mutant(
        "a task ends although an edge is newer than the snapshot",
        "settle/tail",
        "WHERE n.dependents <> (SELECT count(*) FROM edge e WHERE e.upstream_id = n.task_id)",
        "WHERE n.dependents < 0",
    ),
    Mutant(
        "an upstream is not held while a submission ties itself to it",
        "submit/hold_upstream",
        "SET dependents = t.dependents + q.edges",
        "SET dependents = t.dependents",
    ),
    Mutant(
        "counters forget the tasks that ended",
        "settle/tail",
        "SELECT g.suite_id, -count(*), count(*) FILTER (WHERE g.outcome = 0)",
        "SELECT g.suite_id, 0, count(*) FILTER (WHERE g.outcome = 0)",
    ),
    Mutant(
        "a reader skips what commits late",
        "events/of_suite",
        "    AND e.xid < pg_snapshot_xmin(pg_current_snapshot())\n",
        "",
    ),
    Mutant(
        "a progress event is taken from anybody",
        "events/append",
        "            AND coalesce(f.runner_id, 0) = q.runner_id  -- not by the runner's index\n",
        "",
    ),
)
