-- One event about a task that does not change its state: progress of the running command.
-- Fenced like a report; numbered under the row lock. Relies on: task_attempts_pkey, active_tasks_pkey.
-- Called by: tasks.store.append_progress.
WITH asked AS MATERIALIZED (
    SELECT q.*, row_number() OVER (PARTITION BY q.attempt_id ORDER BY q.ord) AS repetition
    FROM unnest(%(attempt_ids)s::bigint[], %(runner_ids)s::bigint[], %(data)s::text[])
        WITH ORDINALITY AS q (attempt_id, runner_id, data, ord)
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
        FOR UPDATE SKIP LOCKED
    ) t
    WHERE q.repetition = 1
),
numbered AS (
    UPDATE active_tasks t
    SET event_seq = t.event_seq + 1
    WHERE t.id = ANY (ARRAY(SELECT h.id FROM hit h))
    RETURNING t.id, t.state, t.group_id, t.suite_id, t.attempt, t.attempt_id, t.event_seq, t.runner_id
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id, runner_id, data)
    SELECT 11, n.state, n.event_seq, n.attempt, n.group_id, n.suite_id, n.id, n.runner_id, q.data::jsonb
    FROM numbered n
    JOIN asked q ON q.attempt_id = n.attempt_id AND q.repetition = 1
)
SELECT q.ord::int,
    CASE
        WHEN n.id IS NOT NULL THEN 'ok'
        WHEN a.id IS NULL THEN 'invalid'
        WHEN a.runner_id <> q.runner_id THEN 'forbidden'
        WHEN t.attempt_id = a.id AND t.runner_id = q.runner_id THEN 'busy'
        ELSE 'stale_attempt'
    END AS answer
FROM asked q
LEFT JOIN numbered n ON n.attempt_id = q.attempt_id AND q.repetition = 1
LEFT JOIN LATERAL (SELECT f.* FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a ON true
LEFT JOIN LATERAL (SELECT f.* FROM active_tasks f WHERE f.id = a.task_id OFFSET 0) t ON true
ORDER BY q.ord
