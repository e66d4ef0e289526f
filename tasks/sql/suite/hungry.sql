-- Managers with workers free in the suites of tasks that were just returned, other than the one that returned them; as many
-- as there are tasks. Relies on: task_attempts_pkey, active_tasks_pkey, suite_assignments_live_suite, active_tasks_runner.
-- Called by: tasks.services.suite_surplus.
SELECT r.uuid, s.uuid
FROM (
    SELECT t.suite_id, count(*) AS tasks
    FROM unnest(%(attempt_ids)s::bigint[]) AS q (attempt_id)
    CROSS JOIN LATERAL (SELECT f.task_id FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a
    CROSS JOIN LATERAL (SELECT f.suite_id, f.is_ready FROM active_tasks f WHERE f.id = a.task_id OFFSET 0) t
    WHERE t.is_ready AND t.suite_id IS NOT NULL
    GROUP BY t.suite_id
) d
JOIN task_suites s ON s.id = d.suite_id
CROSS JOIN LATERAL (
    SELECT a.manager_id
    FROM suite_assignments a
    CROSS JOIN LATERAL (SELECT count(*) AS held FROM active_tasks t WHERE t.runner_id = a.manager_id) n
    WHERE a.suite_id = d.suite_id
        AND a.released_at IS NULL
        AND a.state IN (2, 3)
        AND a.manager_id <> %(runner_id)s::bigint
        AND n.held < (s.worker_schedule ->> 'worker_count')::int
    ORDER BY n.held, a.manager_id
    LIMIT d.tasks
) h
JOIN runners r ON r.id = h.manager_id
