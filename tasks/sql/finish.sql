-- Finish or Cancel as a runner reports it: the command ended, uploads and the commit follow.
-- A lost attempt that nobody claimed again is taken back by it.
-- Relies on: task_attempts_pkey, active_tasks_pkey. Called by: tasks.store.finish.
WITH asked AS MATERIALIZED (
    SELECT q.*, row_number() OVER (PARTITION BY q.attempt_id ORDER BY q.ord) AS repetition
    FROM unnest(%(attempt_ids)s::bigint[], %(runner_ids)s::bigint[], %(cancelled)s::bool[])
        WITH ORDINALITY AS q (attempt_id, runner_id, is_cancelled, ord)
),
hit AS MATERIALIZED (
    SELECT q.is_cancelled, t.id
    FROM asked q
    CROSS JOIN LATERAL (SELECT f.task_id FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a
    CROSS JOIN LATERAL (
        SELECT f.id
        FROM active_tasks f
        WHERE f.id = a.task_id
            AND f.attempt_id = q.attempt_id
            AND q.runner_id = coalesce(f.runner_id, f.lost_runner_id)
            AND f.state IN (1, 2, 3)
        FOR UPDATE SKIP LOCKED
    ) t
    WHERE q.repetition = 1
),
finished AS (
    UPDATE active_tasks t
    SET state = 4,
        runner_id = coalesce(t.runner_id, t.lost_runner_id),
        -- A second task in its hands is possible now, so the one-task rule no longer covers this one.
        is_exclusive = t.is_exclusive AND t.runner_id IS NOT NULL,
        lost_runner_id = NULL,
        failures = t.failures - t.lost_charge,
        lost_charge = 0,
        finish_cancelled = t.id = ANY (ARRAY(SELECT h.id FROM hit h WHERE h.is_cancelled)),
        started_at = coalesce(t.started_at, clock_timestamp()),
        event_seq = t.event_seq + 1,
        updated_at = clock_timestamp()
    WHERE t.id = ANY (ARRAY(SELECT h.id FROM hit h))
    RETURNING t.id, t.group_id, t.suite_id, t.attempt, t.attempt_id, t.event_seq, t.runner_id
),
reopened AS (
    UPDATE task_attempts a
    SET ending = NULL, ended_at = NULL, reason = NULL
    FROM finished f
    WHERE a.id = f.attempt_id AND a.ending IS NOT NULL AND a.id = ANY (ARRAY(SELECT n.attempt_id FROM finished n))
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id, runner_id)
    SELECT 4, 4, f.event_seq, f.attempt, f.group_id, f.suite_id, f.id, f.runner_id
    FROM finished f
)
SELECT q.ord::int,
    CASE
        WHEN f.id IS NOT NULL THEN 'ok'
        WHEN a.id IS NULL THEN 'invalid'
        WHEN a.runner_id <> q.runner_id THEN 'forbidden'
        WHEN t.attempt_id = a.id AND t.state = 4 AND t.runner_id = q.runner_id THEN
            CASE WHEN t.finish_cancelled = q.is_cancelled THEN 'ok_duplicate' ELSE 'invalid' END
        WHEN t.attempt_id = a.id AND q.runner_id = coalesce(t.runner_id, t.lost_runner_id) THEN 'busy'
        ELSE 'stale_attempt'
    END AS answer
FROM asked q
LEFT JOIN finished f ON f.attempt_id = q.attempt_id AND q.repetition = 1
LEFT JOIN LATERAL (SELECT f.* FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a ON true
LEFT JOIN LATERAL (SELECT f.* FROM active_tasks f WHERE f.id = a.task_id OFFSET 0) t ON true
ORDER BY q.ord
