-- The attempt of a task that a runner holds or may still report. Relies on: active_tasks_uuid_key. Called by:
-- tasks.services.manager_attempts, for messages that name the task only.
SELECT t.attempt_id, t.uuid, t.attempt, t.group_id
FROM active_tasks t
WHERE t.uuid = %(task_uuid)s::uuid AND coalesce(t.runner_id, t.lost_runner_id) = %(runner_id)s::bigint AND t.attempt_id IS NOT NULL
