-- Everything a worker came back with: what it holds, and what was taken from it and nobody has claimed since.
-- Relies on: active_tasks_runner, active_tasks_lost. Called by: workers.api.beats.
SELECT t.attempt_id FROM active_tasks t WHERE t.runner_id = %(runner_id)s
UNION ALL
SELECT t.attempt_id FROM active_tasks t WHERE t.lost_runner_id = %(runner_id)s
