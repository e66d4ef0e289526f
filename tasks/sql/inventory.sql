-- Compare what runners say they hold with what the database says. Changes nothing.
-- found: kept, cancel (stop it), lost (adopt it), settled (its report was taken), revoked (not yours: stop it),
-- missing (yours, but you do not have it: the answer that carried it was lost).
-- Relies on: task_attempts_pkey, active_tasks_pkey, active_tasks_runner. Called by: tasks.store.inventory.
WITH said AS MATERIALIZED (
    SELECT DISTINCT * FROM unnest(%(said_runner_ids)s::bigint[], %(said_attempt_ids)s::bigint[])
        AS q (runner_id, attempt_id)
)
SELECT s.runner_id, s.attempt_id,
    CASE
        WHEN t.attempt_id = s.attempt_id AND t.runner_id = s.runner_id THEN
            CASE WHEN t.cancel_requested_at IS NULL THEN 'kept' ELSE 'cancel' END
        WHEN t.attempt_id = s.attempt_id AND t.lost_runner_id = s.runner_id THEN 'lost'
        WHEN a.ending IN (0, 5) THEN 'settled'
        ELSE 'revoked'
    END AS found
FROM said s
LEFT JOIN LATERAL (
    SELECT f.task_id, f.ending FROM task_attempts f WHERE f.id = s.attempt_id AND f.runner_id = s.runner_id OFFSET 0
) a ON true
LEFT JOIN LATERAL (SELECT f.* FROM active_tasks f WHERE f.id = a.task_id OFFSET 0) t ON true
UNION ALL
SELECT t.runner_id, t.attempt_id, 'missing'
FROM active_tasks t
CROSS JOIN LATERAL (SELECT c.claimed_at FROM task_attempts c WHERE c.id = t.attempt_id OFFSET 0) a
WHERE t.runner_id = ANY (%(runner_ids)s::bigint[])
    -- Younger ones may still be on their way to the runner.
    AND a.claimed_at < clock_timestamp() - make_interval(secs => %(settle_s)s::float8)
    AND NOT EXISTS (SELECT FROM said s WHERE s.runner_id = t.runner_id AND s.attempt_id = t.attempt_id)
ORDER BY 1, 2
