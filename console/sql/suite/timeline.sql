-- The newest attempts of a suite, for its timeline: of tasks that are held now and of those that were archived last.
-- Relies on: active_tasks_runner, archived_tasks_suite, task_attempts_fence. Called by: console.selectors.timeline.
WITH newest AS MATERIALIZED (
    (
        SELECT t.id, t.uuid
        FROM active_tasks t
        WHERE t.runner_id = ANY (ARRAY(
                SELECT a.manager_id FROM suite_assignments a WHERE a.suite_id = %(suite_id)s AND a.released_at IS NULL
            ))
            AND t.suite_id = %(suite_id)s
        LIMIT %(max_tasks)s
    )
    UNION ALL
    (
        SELECT t.id, t.uuid
        FROM archived_tasks t
        WHERE t.suite_id = %(suite_id)s
        ORDER BY t.id DESC
        LIMIT %(max_tasks)s
    )
)
SELECT n.uuid, r.uuid, coalesce(a.started_at, a.claimed_at), a.ended_at, a.outcome, a.attempt
FROM newest n
CROSS JOIN LATERAL (
    SELECT x.runner_id, x.claimed_at, x.started_at, x.ended_at, x.outcome, x.attempt
    FROM task_attempts x
    WHERE x.task_id = n.id
    ORDER BY x.attempt DESC
    LIMIT 2
) a
JOIN runners r ON r.id = a.runner_id
WHERE coalesce(a.started_at, a.claimed_at) >= %(since)s
ORDER BY 3
