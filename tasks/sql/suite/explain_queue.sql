-- What waits in a suite's queue: whether something could be claimed now, when the next failed task may be, how many are
-- held, and the tags of each kind of waiting task.
-- Relies on: active_tasks_claim, active_tasks_runner. Called by: tasks.services.explain.
WITH RECURSIVE lane AS (
    (
        SELECT t.lane, t.tags FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = -%(suite_id)s::bigint
        ORDER BY t.lane LIMIT 1
    )
    UNION ALL
    SELECT n.lane, n.tags
    FROM lane l
    CROSS JOIN LATERAL (
        SELECT t.lane, t.tags FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = -%(suite_id)s::bigint AND t.lane > l.lane
        ORDER BY t.lane LIMIT 1
    ) n
)
SELECT
    EXISTS (
        SELECT FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = -%(suite_id)s::bigint AND t.cancel_requested_at IS NULL
            AND t.not_before <= clock_timestamp()
    ) AS has_ready,
    (
        SELECT min(t.not_before) FROM active_tasks t WHERE t.is_ready AND t.queue_id = -%(suite_id)s::bigint
    ) AS next_at,
    (
        SELECT count(*) FROM active_tasks t WHERE t.runner_id IS NOT NULL AND t.suite_id = %(suite_id)s::bigint
    ) AS held,
    coalesce((SELECT json_agg(d.tags) FROM (SELECT l.tags FROM lane l LIMIT 100) d), '[]')::text AS demands
