-- What a worker on HTTP holds, as its heartbeat must know: told to stop, or running far longer than its timeout allows.
-- Relies on: active_tasks_runner. Called by: workers.api.beats.
SELECT t.attempt_id,
    t.cancel_requested_at IS NOT NULL AS is_cancelled,
    t.state IN (2, 3)
        AND t.updated_at < clock_timestamp() - make_interval(secs => t.timeout_s + %(overrun_s)s::float8) AS is_overrun
FROM active_tasks t
WHERE t.runner_id = %(runner_id)s
ORDER BY t.attempt_id
