-- Start: the command of a leased attempt is about to run. A heap-only update: no index sees it.
-- Relies on: task_attempts_pkey, active_tasks_pkey. Called by: tasks.store.start.
WITH asked AS MATERIALIZED (
    SELECT q.*, row_number() OVER (PARTITION BY q.attempt_id ORDER BY q.ord) AS repetition
    FROM unnest(%(attempt_ids)s::bigint[], %(runner_ids)s::bigint[])
        WITH ORDINALITY AS q (attempt_id, runner_id, ord)
),
hit AS MATERIALIZED (
    SELECT t.id
    FROM asked q
    CROSS JOIN LATERAL (SELECT f.task_id FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a
    CROSS JOIN LATERAL (
        SELECT f.id
        FROM active_tasks f
        WHERE f.id = a.task_id
            AND f.attempt_id = q.attempt_id
            AND coalesce(f.runner_id, 0) = q.runner_id  -- not by the runner's index
            AND f.state = 2
        FOR UPDATE SKIP LOCKED
    ) t
    WHERE q.repetition = 1
),
started AS (
    UPDATE active_tasks t
    SET state = 3,
        started_at = coalesce(t.started_at, clock_timestamp()),
        event_seq = t.event_seq + 1,
        updated_at = clock_timestamp()
    WHERE t.id = ANY (ARRAY(SELECT h.id FROM hit h))
    RETURNING t.id, t.group_id, t.suite_id, t.attempt, t.attempt_id, t.event_seq, t.runner_id, t.cancel_requested_at
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id, runner_id)
    SELECT 3, 3, s.event_seq, s.attempt, s.group_id, s.suite_id, s.id, s.runner_id
    FROM started s
)
SELECT q.ord::int,
    CASE
        WHEN s.id IS NOT NULL THEN 'ok'
        WHEN a.id IS NULL THEN 'invalid'
        WHEN a.runner_id <> q.runner_id THEN 'forbidden'
        WHEN t.attempt_id = a.id AND t.runner_id = q.runner_id THEN
            CASE WHEN t.state = 2 THEN 'busy' ELSE 'ok_duplicate' END
        ELSE 'stale_attempt'
    END AS answer,
    s.cancel_requested_at IS NOT NULL AS is_cancelled
FROM asked q
LEFT JOIN started s ON s.attempt_id = q.attempt_id AND q.repetition = 1
LEFT JOIN LATERAL (SELECT f.* FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a ON true
LEFT JOIN LATERAL (SELECT f.* FROM active_tasks f WHERE f.id = a.task_id OFFSET 0) t ON true
ORDER BY q.ord
