-- Cancel, part 1 of 2: waiting tasks end at once, held ones are told to stop. Followed by settle/tail.sql.
-- The commit of this statement is the decision: whatever a runner reports later, the outcome is `cancelled`.
-- Relies on: active_tasks_pkey. Called by: tasks.store.cancel.
WITH RECURSIVE
asked AS MATERIALIZED (
    SELECT min(q.ord) AS ord, q.task_id
    FROM unnest(%(task_ids)s::bigint[]) WITH ORDINALITY AS q (task_id, ord)
    GROUP BY q.task_id
),
hit AS MATERIALIZED (
    SELECT q.ord, t.id AS task_id, t.uuid, t.suite_id, t.dependents, t.started_at, t.failures, t.state,
        t.attempt_id, t.cancel_requested_at, t.lost_runner_id
    FROM asked q
    CROSS JOIN LATERAL (
        SELECT f.*
        FROM active_tasks f
        WHERE f.id = q.task_id AND (f.runner_id IS NULL OR %(held)s::bool)
        FOR UPDATE SKIP LOCKED
    ) t
),
told AS (
    UPDATE active_tasks t
    SET cancel_requested_at = clock_timestamp(), event_seq = t.event_seq + 1, updated_at = clock_timestamp()
    WHERE t.id = ANY (ARRAY(SELECT h.task_id FROM hit h WHERE h.state >= 2 AND h.cancel_requested_at IS NULL))
    RETURNING t.id, t.group_id, t.suite_id, t.attempt, t.event_seq, t.state, t.runner_id
),
told_logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id, runner_id)
    SELECT 7, t.state, t.event_seq, t.attempt, t.group_id, t.suite_id, t.id, t.runner_id
    FROM told t
),
item AS MATERIALIZED (
    SELECT q.ord,
        CASE
            WHEN h.state >= 2 THEN 'cancelling'
            WHEN t.id IS NULL THEN 'gone'
            WHEN t.runner_id IS NOT NULL AND NOT %(held)s::bool THEN 'held'
            ELSE 'busy'
        END AS refusal
    FROM asked q
    LEFT JOIN LATERAL (SELECT f.* FROM active_tasks f WHERE f.id = q.task_id OFFSET 0) t ON true
    LEFT JOIN hit h ON h.ord = q.ord
),
verdict AS MATERIALIZED (
    SELECT h.ord, h.task_id, h.uuid, h.suite_id, h.dependents, h.started_at, h.failures, 'end' AS action,
        4::smallint AS outcome, 0 AS exit_status, 6::smallint AS msg, %(reason)s::text AS reason, NULL::text AS result,
        -- A lost attempt is closed for good: its late report must not find a task any more.
        CASE WHEN h.lost_runner_id IS NOT NULL THEN h.attempt_id END AS attempt_id,
        NULL::bigint AS reporter_id, NULL::uuid AS op_id, NULL::int AS worker_id, 4::smallint AS ending,
        0 AS charge, 0::float8 AS delay_s, false AS is_lost, false AS is_excluded, false AS is_crash, false AS is_oom
    FROM hit h
    WHERE h.state < 2
),
