"""One pass over 1,000 managers and 1,000 suites, and the plans of its statements."""

import time

import pytest
from django.db import connection
from django.db.models.functions import Now

from accounts.models import User
from core.pg import load_sql
from managers.models import SuiteAssignment, SuiteManager
from managers.services.eligibility import find_drift, match_suites, sweep_matches
from managers.services.scheduler import run_pass
from runners.models import Runner
from suites.models import TaskSuite
from tests.integration.suites.campaign import make_suite, make_user, own_group

pytestmark = pytest.mark.django_db(transaction=True)

GOAL_MS = 200
# Other work may have both cores while this runs; the figure is printed, the limit is generous.
SLACK = 6
FLEET = 1000

MATCHING_AGAIN_S = 3.0  # 0.05 s when the machine is idle
QUIET_SWEEP_S = 1.0  # 0.02 s when the machine is idle

_FILL_EVERY_20TH_MANAGER = """
INSERT INTO task_suite_managers (task_suite_id, manager_id, selection_type, matched_tags)
SELECT s.id, r.id, 1, s.tags
FROM task_suites s JOIN runners r ON s.tags <@ r.tags AND r.id % 20 = 0
"""
_ANALYZE_ALL = "ANALYZE task_suite_managers, group_runners, runners, task_suites"
_MAKE_FLEET = """
WITH r AS (
    INSERT INTO runners (uuid, kind, owner_id, conn_state, desired_state, tags, labels)
    SELECT gen_random_uuid(), 0, %(owner)s, 1, 0,
        ARRAY['linux', 'zone:' || n %% 4]
            || CASE WHEN n %% 10 = 0 THEN ARRAY['gpu'] ELSE '{}' END, '{}'
    FROM generate_series(1, %(count)s) n
    RETURNING id
), l AS (
    INSERT INTO runner_leases (runner_id, session_epoch, expires_at)
    SELECT id, 0, clock_timestamp() + interval '1 hour' FROM r
), m AS (
    INSERT INTO node_managers (runner_id, state) SELECT id, 0 FROM r
)
INSERT INTO group_runners (group_id, runner_id, role, consent) SELECT %(group)s, id, 1, 1 FROM r
"""
_MAKE_SUITES = """
INSERT INTO task_suites (
    uuid, group_id, creator_id, tags, labels, priority, worker_schedule, settle_seconds,
    linger_seconds, on_partition, state, submit_count, last_task_submitted_at
)
SELECT gen_random_uuid(), %(group)s, %(owner)s,
    ARRAY['linux'] || CASE WHEN n %% 20 = 0 THEN ARRAY['gpu'] ELSE '{}' END, '{}', n %% 5,
    '{"worker_count": 4}', 10, 60, 0, 0, 1, clock_timestamp()
FROM generate_series(1, %(count)s) n
"""
_MAKE_TASKS = """
WITH t AS (
    INSERT INTO active_tasks (
        uuid, group_id, creator_id, number, suite_id, tags, labels, timeout_s, spec, state
    )
    SELECT gen_random_uuid(), s.group_id, s.creator_id, n, s.id, '{}', '{}', 60,
        '{"args": ["true"]}', 1
    FROM task_suites s, generate_series(1, 20) n
    RETURNING suite_id
)
INSERT INTO suite_count_deltas (suite_id, total, pending)
SELECT suite_id, count(*), count(*) FROM t GROUP BY suite_id
"""


@pytest.fixture
def crowd() -> User:
    """A thousand managers, a thousand suites of twenty tasks each."""
    ada = make_user("ada")
    parameters = {"owner": ada.pk, "group": own_group(ada).pk, "count": FLEET}
    with connection.cursor() as cursor:
        for sql in (_MAKE_FLEET, _MAKE_SUITES, _MAKE_TASKS):
            cursor.execute(sql, parameters)
        for table in ("runners", "task_suites", "active_tasks", "suite_count_deltas"):
            cursor.execute(f"ANALYZE {table}")
    return ada


def timed_pass() -> tuple[float, int]:
    start = time.perf_counter()
    result = run_pass()
    return (time.perf_counter() - start) * 1000, len(result.engaged)


@pytest.mark.alone
def test_a_pass_over_a_thousand_managers_and_suites_is_quick(crowd: User) -> None:
    first_ms, engaged = timed_pass()
    assert engaged == FLEET
    SuiteAssignment.objects.update(state=2)
    steady = sorted(timed_pass()[0] for _ in range(5))
    print(
        f"\nscheduler pass, {FLEET} x {FLEET}:"
        f" all idle {first_ms:.0f} ms, steady {steady[2]:.0f} ms"
    )
    assert steady[2] < GOAL_MS * SLACK
    assert first_ms < GOAL_MS * SLACK


def test_matching_many_suites_and_managers_is_set_based(crowd: User) -> None:
    suite_ids = list(TaskSuite.objects.order_by("pk").values_list("pk", flat=True)[:20])
    start = time.perf_counter()
    matched = match_suites(suite_ids)
    first_s = time.perf_counter() - start
    start = time.perf_counter()
    assert match_suites(suite_ids).count == 0
    again_s = time.perf_counter() - start
    print(f"\nmatching 20 x {FLEET}: first {first_s:.2f} s, again {again_s:.2f} s")
    assert len(matched.added) == 19 * 1000 + 1 * 100
    assert again_s < MATCHING_AGAIN_S


def test_the_sweep_looks_at_kinds_of_suites_and_matches_only_what_drifted(crowd: User) -> None:
    """A million stored pairs are read in 0.3 to 0.5 s; here are a twentieth, to spare the filling.

    Most of any full matching is the writing of rows and the check of their keys.
    """
    with connection.cursor() as cursor:
        cursor.execute(_FILL_EVERY_20TH_MANAGER)
        cursor.execute(_ANALYZE_ALL)
    assert len(find_drift()) == FLEET, "every suite lacks managers"
    Runner.objects.exclude(pk__in=SuiteManager.objects.values("manager_id")).update(
        revoked_at=Now()
    )
    start = time.perf_counter()
    assert sweep_matches().count == 0
    quiet_s = time.perf_counter() - start
    one = TaskSuite.objects.order_by("pk")[7]
    SuiteManager.objects.filter(suite=one)[:1].get().delete()
    assert find_drift() == [one.pk]
    start = time.perf_counter()
    assert [suite_id for suite_id, _ in sweep_matches().added] == [one.pk]
    drifted_s = time.perf_counter() - start
    print(f"\nsweep of matches: quiet {quiet_s:.3f} s, one drifted {drifted_s:.3f} s")
    assert quiet_s < QUIET_SWEEP_S


def test_the_reads_of_a_pass_use_their_indexes(crowd: User) -> None:
    suite = make_suite(crowd)
    with connection.cursor() as cursor:
        for name, index in (
            ("campaigns", "suite_count_deltas_suite"),
            ("demands", "active_tasks_claim"),
        ):
            cursor.execute("EXPLAIN " + load_sql("managers", name))
            plan = "\n".join(row[0] for row in cursor.fetchall())
            assert index in plan
            assert "Seq Scan on active_tasks" not in plan
        cursor.execute("SET enable_seqscan = off")
        picks = {"suite_ids": [suite.pk], "manual_ids": [suite.pk]}
        cursor.execute("EXPLAIN " + load_sql("managers", "picks"), picks)
        plan = "\n".join(row[0] for row in cursor.fetchall())
        cursor.execute("RESET enable_seqscan")
        assert "task_suite_managers_by_hand" in plan
        assert "preparation_failures_" in plan
