-- Tasks that every manager who could run them has given up, part 1 of 3. Followed by settle/end_failed.sql and settle/tail.sql.
-- They end as failed, so that the suite can complete. A suite without any eligible manager waits instead: that is not the
-- tasks' fault. Relies on: active_tasks_excluded, task_suite_managers_unique, group_runners_unique. Called by:
-- tasks.services.suite_hopeless.
WITH RECURSIVE
given_up AS MATERIALIZED (
    SELECT t.id, t.suite_id, t.excluded_runner_ids
    FROM active_tasks t
    JOIN task_suites s ON s.id = t.suite_id AND s.state IN (0, 1)
    WHERE t.is_ready AND t.excluded_runner_ids <> '{}'
    ORDER BY t.id
    LIMIT %(max_looked_at)s::int
),
able AS MATERIALIZED (
    SELECT s.id AS suite_id, array_agg(r.id) AS manager_ids
    FROM task_suites s
    JOIN task_suite_managers e ON e.task_suite_id = s.id AND e.removed_at IS NULL
    JOIN runners r ON r.id = e.manager_id AND r.revoked_at IS NULL
    JOIN group_runners gr ON gr.group_id = s.group_id AND gr.runner_id = r.id AND gr.role >= 1 AND gr.consent = 1
    WHERE s.id IN (SELECT g.suite_id FROM given_up g)
        AND NOT EXISTS (
            SELECT FROM preparation_failures p
            WHERE p.suite_id = s.id AND p.manager_id = r.id AND p.forgiven_at IS NULL
        )
    GROUP BY s.id
),
hit AS MATERIALIZED (
    SELECT row_number() OVER () AS ord, n.*
    FROM (
        SELECT t.id AS task_id, t.uuid, t.suite_id, t.dependents, t.started_at, t.failures, t.attempt_id, t.lost_runner_id
        FROM given_up g
        JOIN able a ON a.suite_id = g.suite_id AND a.manager_ids <@ g.excluded_runner_ids
        JOIN active_tasks t ON t.id = g.id AND t.is_ready AND t.cancel_requested_at IS NULL
        ORDER BY t.id
        LIMIT %(max_tasks)s::int
        FOR UPDATE OF t SKIP LOCKED
    ) n
),
