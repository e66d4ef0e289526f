-- Which attempt of a task a worker may write output for; a lost one counts until somebody else has claimed it.
-- Relies on: active_tasks_uuid_key. Called by: workers.api.output.
SELECT t.attempt
FROM active_tasks t
WHERE t.uuid = %(uuid)s AND coalesce(t.runner_id, t.lost_runner_id) = %(runner_id)s
