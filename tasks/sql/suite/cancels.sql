-- What runners hold and have to stop. Relies on: active_tasks_runner. Called by: tasks.services.manager_beats, for
-- clients that send no inventory.
SELECT t.runner_id, t.uuid
FROM active_tasks t
WHERE t.runner_id = ANY (%(runner_ids)s::bigint[]) AND t.cancel_requested_at IS NOT NULL
ORDER BY t.id
LIMIT 1000
