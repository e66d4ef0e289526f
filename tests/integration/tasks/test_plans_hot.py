"""EXPLAIN of every hot statement with 100,000 active tasks: it uses its index, and reads no table.

Plans are the generic ones, as the pool's prepared statements use them after a few runs.
"""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

from mitosis_protocol.enums import ArtifactContentType, Outcome
from tasks import store
from tasks.rows import ClaimRequest, Report, SettleOp, UploadRequest
from tasks.statements import Params, Statement, _numbered, _plain, array
from tests.property.lab import Lab, lab_fixture, query

lab = pytest.fixture(name="lab")(lab_fixture)

# Tables that grow with the work; the rest is as large as the fleet and may be read as it likes.
LARGE = {
    "active_tasks",
    "archived_tasks",
    "artifacts",
    "task_attempts",
    "task_dependencies",
    "task_events",
    "task_execution_failures",
}
ROWS = 100_000
# One runner holds 2,000 of them, which some statements read once or twice.
MAX_TOUCHED = 8_000

BUILD = """
INSERT INTO active_tasks (uuid, group_id, creator_id, number, suite_id, priority, tags, labels,
    timeout_s, spec, state, lane, runner_id, attempt, attempt_id, started_at, waiting_on)
SELECT gen_random_uuid(), %(group)s, %(creator)s, i, CASE WHEN i %% 2 = 0 THEN %(suite)s END,
    i %% 5, '{}', '{}', 60, '{"args": ["/bin/true"]}',
    CASE WHEN i %% 50 = 0 THEN 3 WHEN i %% 50 = 1 THEN 0 ELSE 1 END, i %% 3,
    CASE WHEN i %% 50 = 0 THEN %(runner)s END, 1, i,
    CASE WHEN i %% 50 = 0 THEN clock_timestamp() END, CASE WHEN i %% 50 = 1 THEN 1 ELSE 0 END
FROM generate_series(1, %(rows)s) i;
INSERT INTO archived_tasks (id, uuid, group_id, creator_id, number, suite_id, tags, labels,
    timeout_s, spec, state, outcome)
SELECT 1000000000 + i, gen_random_uuid(), %(group)s, %(creator)s, i, %(suite)s, '{}', '{}', 60,
    '{}', 3, 0
FROM generate_series(1, %(rows)s) i;
INSERT INTO task_attempts (id, task_id, attempt, runner_id, session_epoch, claim_id)
SELECT i, (SELECT min(id) FROM active_tasks) + i - 1, 1, %(runner)s, 0, gen_random_uuid()
FROM generate_series(1, %(rows)s) i;
INSERT INTO task_events (kind, seq, group_id, suite_id, task_id)
SELECT 0, 1, %(group)s, CASE WHEN id %% 100 = 0 THEN %(suite)s END, id FROM active_tasks;
INSERT INTO task_dependencies (task_id, upstream_id, condition)
SELECT id, id - 1, 0 FROM active_tasks WHERE state = 0;
INSERT INTO task_execution_failures (task_id, task_uuid, runner_id, error_messages)
SELECT id, uuid, %(runner)s, '{}' FROM active_tasks WHERE id %% 20 = 0;
INSERT INTO artifacts (task_id, task_uuid, group_id, attempt, content_type, size, key)
SELECT id, uuid, group_id, 1, 2, 1, uuid::text FROM active_tasks;
SELECT setval('task_attempts_id_seq', %(rows)s);
"""


def test_hot_statements_use_their_indexes_at_a_hundred_thousand_tasks(lab: Lab):
    _build(lab)
    problems = [
        f"{'+'.join(statement.parts)}: {problem}"
        for statement, params, indexes in _hot_statements(lab)
        for problem in _problems(statement, params, indexes)
    ]
    assert not problems, "\n".join(problems)


def test_plans_made_on_an_empty_queue_hold_when_it_fills(lab: Lab):
    """The pool keeps its plans; a queue that was empty when they were made must not matter."""
    statements = list(_hot_statements(lab))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("SET plan_cache_mode = force_generic_plan")
        # As tasks.statements does for the connections of the pool.
        cursor.execute("SET enable_seqscan = off")
    for number, (statement, params, _) in enumerate(statements):
        _prepare(f"hot_{number}", statement)
        _execute_and_forget(f"hot_{number}", statement, params)
    _build(lab, analyze=False)
    problems = []
    for number, (statement, params, _) in enumerate(statements):
        [plan] = _execute_and_forget(f"hot_{number}", statement, params)
        problems += [
            f"{'+'.join(statement.parts)}: touches {rows:.0f} rows by {index}"
            for index, rows in _rows_touched(plan)
            if rows > MAX_TOUCHED
        ]
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
        cursor.execute("RESET ALL")
    assert not problems, "\n".join(problems)


def _execute_and_forget(name: str, statement: Statement[Any], params: Params) -> list[Any]:
    _, names = _numbered(statement.parts)
    values = [_plain(params[name]) for name in names]
    literals = ", ".join("%s" for _ in values)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name} ({literals})", values)
        [found] = cursor.fetchone()
        transaction.set_rollback(True)
    explained = json.loads(found) if isinstance(found, str) else found
    return [explained[0]["Plan"]]


def _rows_touched(plan: dict[str, Any]) -> Iterator[tuple[str, float]]:
    for node in _nodes(plan):
        if node.get("Relation Name") in LARGE and "Scan" in node["Node Type"]:
            each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            way = node.get("Index Name", "no index")
            yield f"{way} of {node['Relation Name']}", each * node["Actual Loops"]


def _prepare(name: str, statement: Statement[Any]) -> None:
    text, _ = _numbered(statement.parts)
    with connection.cursor() as cursor:
        # No parameters here: the text has its own $1, and a lone % would be one to psycopg.
        cursor.cursor.execute(f"PREPARE {name} AS {text}", prepare=False)


def _hot_statements(lab: Lab) -> Iterator[tuple[Statement[Any], Params, set[str]]]:
    runner = lab.runner_ids[0]
    attempts = list(range(1, 65))
    pairs = [(attempt, runner) for attempt in attempts]
    fence = {"task_attempts_pkey", "active_tasks_pkey"}
    request = ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), want=16)
    yield (
        store.CLAIM,
        store.claim_params([request]),
        {"active_tasks_claim", "active_tasks_runner", "task_attempts_claim", "active_tasks_pkey"},
    )
    yield (
        store.CLAIM_FOR_SUITE,
        {
            "runner_ids": array([runner]),
            "session_epochs": "{NULL}",
            "claim_ids": array([uuid.uuid4()]),
            "wants": "{16}",
            "assignment_ids": array([lab.engage(runner)]),
        },
        {"active_tasks_claim", "task_attempts_claim", "active_tasks_pkey"},
    )
    reports = [
        Report(
            attempt_id=a,
            runner_id=r,
            op=SettleOp.COMMIT,
            op_id=uuid.uuid4(),
            outcome=Outcome.SUCCEEDED,
            exit_status=0,
        )
        for a, r in pairs
    ]
    settle = store.settle_params(reports, backoff_s=1, backoff_max_s=9)
    yield store.SETTLE, settle, {*fence, "task_dependencies_upstream"}
    yield store.START, store.start_params(pairs), fence
    yield store.FINISH, store.finish_params([(a, r, False) for a, r in pairs]), fence
    yield store.ADOPT, store.adopt_params(runner, attempts, None), fence
    yield (
        store.APPEND_PROGRESS,
        store.progress_params([(a, r, "{}") for a, r in pairs]),
        fence,
    )
    uploads = [UploadRequest(a, r, ArtifactContentType.RESULT, 10) for a, r in pairs]
    yield store.ISSUE_UPLOADS, store.upload_params(uploads), {*fence, "artifacts_task"}
    yield from _sweeping_statements(runner, attempts)
    yield from _cooler_statements(lab)


def _sweeping_statements(
    runner: int, attempts: list[int]
) -> Iterator[tuple[Statement[Any], Params, set[str]]]:
    """Cancelling, reaping and reconciling."""
    fence = {"task_attempts_pkey", "active_tasks_pkey"}
    yield (
        store.CANCEL,
        {"task_ids": array(attempts), "held": True, "reason": "x"},
        {"active_tasks_pkey", "task_dependencies_upstream"},
    )
    reap = {"runner_ids": None, "grace_s": 5, "max_runners": 20, "max_tasks": 1000, "charge": True}
    yield (
        store.REAP,
        {**reap, "reason": "x", "adoptable": True},
        {"active_tasks_runner", "active_tasks_lost"},
    )
    yield (
        store.END_OVERDUE,
        {"cancel_silence_s": 30, "grace_s": 60, "exclusive_grace_s": 600, "max_tasks": 1000},
        {"active_tasks_runner"},
    )
    yield (
        store.INVENTORY,
        store.inventory_params({runner: attempts}, settle_s=10),
        {*fence, "active_tasks_runner"},
    )


def _cooler_statements(lab: Lab) -> Iterator[tuple[Statement[Any], Params, set[str]]]:
    """Links, events and labels."""
    scope = {"group_id": lab.group_id, "suite_id": None}
    one = array([uuid.uuid4()])
    yield (
        store.HOLD_UPSTREAM,
        {"uuids": one, "edges": "{1}", **scope},
        {"active_tasks_uuid_key"},
    )
    yield store.FIND_ENDED, {"uuids": one, **scope}, {"archived_tasks_uuid_key"}
    yield (
        store.EVENTS_OF_TASK,
        {"task_id": 5, "after_seq": 0, "max_events": 100},
        {"task_events_task"},
    )
    position = {"xid": "5", "id": 5, "max_events": 100}
    yield store.EVENTS_OF_SUITE, {**position, "suite_id": lab.suite_id}, {"task_events_suite"}
    yield store.EVENTS_WINDOW, {**position, "group_ids": "{1}"}, {"task_events_pkey"}
    yield (
        store.TRIM_EVENTS,
        {**position, "keep_s": 3600},
        {"task_events_pkey", "active_tasks_pkey", "archived_tasks_pkey"},
    )
    uid = str(uuid.uuid4())
    yield (
        store.RELABEL,
        {"uuid": uid, "labels": ["x"]},
        {"active_tasks_uuid_key", "archived_tasks_uuid_key"},
    )


def _problems(statement: Statement[Any], params: Params, indexes: set[str]) -> Iterator[str]:
    plan = _generic_plan(statement, params)
    nodes = list(_nodes(plan))
    read_whole = {
        node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"
    } & LARGE
    if read_whole:
        yield f"reads {sorted(read_whole)} from end to end"
    used = {node["Index Name"] for node in nodes if "Index Name" in node}
    if not indexes <= used:
        yield f"does not use {sorted(indexes - used)}, but {sorted(used)}"
    sorted_large = [
        node
        for node in nodes
        if node["Node Type"] == "Sort" and node["Plan Rows"] > ROWS / 2 and "CTE" not in str(node)
    ]
    if sorted_large:
        yield "sorts the whole queue"


def _generic_plan(statement: Statement[Any], params: Params) -> dict[str, Any]:
    _, names = _numbered(statement.parts)
    values = [_plain(params[name]) for name in names]
    _prepare("hot", statement)
    with connection.cursor() as cursor:
        try:
            cursor.execute("SET plan_cache_mode = force_generic_plan")
            literals = ", ".join("%s" for _ in values)
            cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE hot ({literals})", values)
            [found] = cursor.fetchone()
        finally:
            cursor.execute("DEALLOCATE hot")
            cursor.execute("RESET plan_cache_mode")
    explained = json.loads(found) if isinstance(found, str) else found
    return explained[0]["Plan"]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)


def _build(lab: Lab, *, analyze: bool = True) -> None:
    with connection.cursor() as cursor:
        # A hundred thousand rows are not a request: on a busy machine they take longer than one.
        cursor.execute("SET statement_timeout = 0")
        cursor.execute(
            BUILD,
            {
                "group": lab.group_id,
                "creator": lab.creator_id,
                "suite": lab.suite_id,
                "runner": lab.runner_ids[0],
                "rows": ROWS,
            },
        )
        if analyze:
            cursor.execute("ANALYZE")
        cursor.execute("RESET statement_timeout")
    [row] = query("SELECT count(*) AS n FROM active_tasks")
    assert row["n"] == ROWS
