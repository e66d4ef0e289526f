-- Attempts a runner holds or may still report, by attempt; the others are missing. Relies on: task_attempts_pkey,
-- active_tasks_pkey. Called by: tasks.services.manager_attempts.
SELECT t.attempt_id, t.uuid, t.attempt, t.group_id
FROM unnest(%(attempt_ids)s::bigint[]) AS q (attempt_id)
JOIN task_attempts a ON a.id = q.attempt_id AND a.runner_id = %(runner_id)s::bigint
JOIN active_tasks t ON t.id = a.task_id AND t.attempt_id = a.id
WHERE coalesce(t.runner_id, t.lost_runner_id) = %(runner_id)s::bigint
