-- One line per watched suite that differs whenever its hosts, their phases or what they hold do.
-- Relies on: task_suites_uuid_key, suite_assignments_live_suite, active_tasks_runner. Called by: console.selectors.stamps.
SELECT s.uuid::text, concat_ws(',', s.updated_at, e.engaged, h.held)
FROM task_suites s
LEFT JOIN LATERAL (
    SELECT string_agg(concat_ws(':', a.id, a.state, a.renewals, a.release_reason), ' ' ORDER BY a.id) AS engaged
    FROM suite_assignments a
    WHERE a.suite_id = s.id AND a.released_at IS NULL
) e ON true
LEFT JOIN LATERAL (
    SELECT string_agg(concat_ws('/', m.runner_id, m.held, m.running), ' ' ORDER BY m.runner_id) AS held
    FROM (
        SELECT t.runner_id, count(*) AS held, count(*) FILTER (WHERE t.state = 3) AS running
        FROM active_tasks t
        WHERE t.suite_id = s.id
            AND t.runner_id = ANY (ARRAY(
                SELECT a.manager_id FROM suite_assignments a WHERE a.suite_id = s.id AND a.released_at IS NULL
            ))
        GROUP BY t.runner_id
    ) m
) h ON true
WHERE s.uuid = ANY (%(uuids)s::uuid[])
