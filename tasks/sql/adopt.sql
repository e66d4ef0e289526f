-- Adopt: lost attempts that their runner still holds and nobody claimed again become its own once more.
-- The charge of the loss is given back. Relies on: task_attempts_pkey, active_tasks_pkey.
-- Called by: tasks.store.adopt, at a reconnect and for inventories.
WITH asked AS MATERIALIZED (
    SELECT q.ord, q.attempt_id, q.runner_id,
        row_number() OVER (PARTITION BY q.attempt_id ORDER BY q.ord) AS repetition,
        -- No foreign key looks after it (ADR 0019): one that is not there counts as none, one that is there stays.
        (SELECT e.id FROM suite_assignments e WHERE e.id = q.assignment_id FOR KEY SHARE) AS assignment_id
    FROM unnest(%(attempt_ids)s::bigint[], %(runner_ids)s::bigint[], %(assignment_ids)s::bigint[])
        WITH ORDINALITY AS q (attempt_id, runner_id, assignment_id, ord)
),
hit AS MATERIALIZED (
    SELECT q.ord, q.runner_id, q.assignment_id, t.id
    FROM asked q
    JOIN runners r ON r.id = q.runner_id
    CROSS JOIN LATERAL (SELECT f.task_id FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a
    CROSS JOIN LATERAL (
        SELECT f.id
        FROM active_tasks f
        WHERE f.id = a.task_id
            AND f.attempt_id = q.attempt_id
            AND f.lost_runner_id = q.runner_id
            AND f.state = 1
            -- A suite's task is only kept by a manager that is engaged with the suite again.
            AND (f.suite_id IS NULL OR q.assignment_id IS NOT NULL)
        FOR UPDATE SKIP LOCKED
    ) t
    WHERE q.repetition = 1 AND r.revoked_at IS NULL
),
adopted AS (
    UPDATE active_tasks t
    SET state = 2,
        runner_id = h.runner_id,
        is_exclusive = false,
        assignment_id = h.assignment_id,
        lost_runner_id = NULL,
        failures = t.failures - t.lost_charge,
        lost_charge = 0,
        event_seq = t.event_seq + 1,
        updated_at = clock_timestamp()
    FROM hit h
    WHERE t.id = h.id AND t.id = ANY (ARRAY(SELECT n.id FROM hit n))
    RETURNING h.ord, t.id, t.group_id, t.suite_id, t.attempt, t.attempt_id, t.event_seq, t.runner_id, t.assignment_id
),
reopened AS (
    UPDATE task_attempts a
    SET ending = NULL, ended_at = NULL, reason = NULL, assignment_id = d.assignment_id
    FROM adopted d
    WHERE a.id = d.attempt_id AND a.id = ANY (ARRAY(SELECT n.attempt_id FROM adopted n))
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id, runner_id)
    SELECT 9, 2, d.event_seq, d.attempt, d.group_id, d.suite_id, d.id, d.runner_id
    FROM adopted d
)
SELECT q.ord::int,
    CASE
        WHEN d.ord IS NOT NULL THEN 'ok'
        WHEN a.id IS NULL THEN 'invalid'
        WHEN a.runner_id <> q.runner_id THEN 'forbidden'
        WHEN t.attempt_id = a.id AND t.runner_id = q.runner_id THEN 'ok_duplicate'
        WHEN t.attempt_id = a.id AND t.lost_runner_id = q.runner_id AND r.revoked_at IS NULL
            AND (t.suite_id IS NULL OR q.assignment_id IS NOT NULL) THEN 'busy'
        ELSE 'stale_attempt'
    END AS answer
FROM asked q
LEFT JOIN adopted d ON d.ord = q.ord
LEFT JOIN LATERAL (SELECT f.* FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a ON true
LEFT JOIN LATERAL (SELECT f.* FROM active_tasks f WHERE f.id = a.task_id OFFSET 0) t ON true
LEFT JOIN runners r ON r.id = q.runner_id
ORDER BY q.ord
