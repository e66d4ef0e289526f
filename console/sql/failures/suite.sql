-- The newest failures of one suite before the cursor (ended_at, id). Relies on: archived_tasks_failed_suite.
-- Called by: console.selectors.failures.
SELECT t.id, t.uuid, t.ended_at, t.outcome, t.exit_status, t.msg, left(t.reason, 200) AS reason, t.runner_id, t.suite_id, t.group_id
FROM archived_tasks t
WHERE t.suite_id = %(suite_id)s::bigint AND t.outcome IN (1, 2, 3, 5)
    AND t.ended_at >= %(since)s AND (t.ended_at, t.id) < (%(before_at)s, %(before_id)s)
ORDER BY t.ended_at DESC, t.id DESC
LIMIT %(max_rows)s
