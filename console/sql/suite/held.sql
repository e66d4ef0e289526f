-- What the managers engaged with a suite hold of it: tasks per manager. Relies on: suite_assignments_live_suite,
-- active_tasks_runner. Called by: console.selectors.suite.
SELECT t.runner_id, count(*), count(*) FILTER (WHERE t.state = 3)
FROM active_tasks t
WHERE t.runner_id = ANY (ARRAY(
        SELECT a.manager_id FROM suite_assignments a WHERE a.suite_id = %(suite_id)s AND a.released_at IS NULL
    ))
    AND t.suite_id = %(suite_id)s
GROUP BY t.runner_id
