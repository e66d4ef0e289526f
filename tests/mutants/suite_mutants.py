"""Guards of suites, broken one at a time; their machine kills each."""

from tests.mutants.machine_mutants import MachineMutant

SUITE_MUTANTS = (
    MachineMutant(
        "a suite that never had a task completes",
        "suites/find/drained",
        [("    AND s.submit_count > 0\n", "")],
    ),
    MachineMutant(
        "an open suite completes before it has settled",
        "suites/find/drained",
        [("<= clock_timestamp() - make_interval(secs => s.settle_seconds)", "IS NOT NULL")],
    ),
    MachineMutant(
        "a suite that was reopened by hand completes again at once",
        "suites/find/drained",
        [("s.last_task_submitted_at >= s.opened_at", "true")],
    ),
    MachineMutant(
        "a suite that was reopened by hand is idle at once",
        "suites/find/idle",
        [
            (
                "    AND s.opened_at < clock_timestamp() - make_interval(secs => %(idle_s)s)\n",
                "",
            )
        ],
    ),
    MachineMutant(
        "a submit does not open its suite",
        "suites/accept_submits",
        [("SET state = 0,", "SET state = s.state,")],
    ),
    MachineMutant(
        "a cancelled suite takes submits",
        "suites/accept_submits",
        [(" AND s.state = ANY (%(sources)s::smallint[])", " AND %(sources)s IS NOT NULL")],
    ),
    MachineMutant(
        "a submit to a closed suite is no new generation",
        "suites/accept_submits",
        [("s.generation + (s.state <> 0)::int", "s.generation")],
    ),
    MachineMutant(
        "a resumed suite is stopped by what was forgiven",
        "suites/unblock",
        [("CASE WHEN s.blocked_at IS NULL THEN s.forgiven_failed ELSE n.failed END", "0")],
    ),
    MachineMutant(
        "a suite that ended is blocked",
        "suites/find/failing",
        [("WHERE s.state IN (0, 1)\n", "WHERE true\n")],
    ),
    MachineMutant(
        "a cancelled suite is closed without a word",
        "suites.services.lifecycle",
        [
            (
                "            _refuse_cancelled(suite.pk, SuiteState.CLOSED)\n",
                "            pass\n",
            )
        ],
    ),
    MachineMutant(
        "a cancelled suite can be paused",
        "suites.services.pausing",
        [(".exclude(state=SuiteState.CANCELLED)", "")],
    ),
    MachineMutant(
        "a paused suite hands out tasks",
        "tasks/suite/claim",
        [(" AND s.paused_at IS NULL", "")],
    ),
    MachineMutant(
        "a blocked suite hands out tasks",
        "tasks/suite/claim",
        [(" AND s.blocked_at IS NULL", "")],
    ),
    MachineMutant(
        "two managers together hold more than the suite may run",
        "tasks/suite/claim",
        [("s.max_running - n.held", "s.max_running")],
    ),
    MachineMutant(
        "a cancel that spares what runs stops it",
        "tasks.services.suite_cancel",
        [("        if stop_running:\n", "        if True:\n")],
    ),
    MachineMutant(
        "what waits outlives its suite",
        "tasks.services.suite_cancel",
        [("cancel_suite_tasks(suite.pk,", "cancel_suite_tasks(0,")],
    ),
    MachineMutant(
        "a task is rerun twice",
        "tasks/suite/rerun_candidates",
        [("    AND NOT EXISTS (SELECT FROM task_reruns r WHERE r.original_id = a.id)\n", "")],
    ),
    MachineMutant(
        "a rerun is not counted",
        "tasks/suite/rerun",
        [("SELECT i.suite_id, count(*), count(*)", "SELECT i.suite_id, 0, 0")],
    ),
    MachineMutant(
        "folding loses what ended",
        "tasks/counts/fold",
        [("sum(o.succeeded)", "0")],
    ),
)
