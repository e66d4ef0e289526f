-- Waiting tasks whose resources are on a runner that left for good, or that refused them, part 1 of 2. Followed by
-- settle/tail.sql. They end as failed: nobody else may run them, and they would wait for ever.
-- Relies on: active_tasks_pinned, runners_pkey. Called by: tasks.services.unreachable.
WITH RECURSIVE
hit AS MATERIALIZED (
    SELECT row_number() OVER () AS ord, n.*
    FROM (
        SELECT t.id AS task_id, t.uuid, t.suite_id, t.dependents, t.started_at, t.failures, t.attempt_id, t.lost_runner_id
        FROM active_tasks t
        JOIN runners r ON r.id = t.pinned_runner_id
        WHERE t.pinned_runner_id IS NOT NULL
            AND t.is_ready
            AND t.cancel_requested_at IS NULL
            AND (r.revoked_at IS NOT NULL OR r.id = ANY (t.excluded_runner_ids))
        ORDER BY t.id
        LIMIT %(max_tasks)s::int
        FOR UPDATE OF t SKIP LOCKED
    ) n
),
item AS MATERIALIZED (SELECT h.ord, NULL::text AS refusal FROM hit h),
verdict AS MATERIALIZED (
    SELECT h.ord, h.task_id, h.uuid, h.suite_id, h.dependents, h.started_at, h.failures, 'end' AS action,
        1::smallint AS outcome, NULL::int AS exit_status, NULL::smallint AS msg,
        'the worker that has its resources is gone or cannot run it' AS reason, NULL::text AS result,
        -- A lost attempt is closed for good: its late report must not find a task any more.
        CASE WHEN h.lost_runner_id IS NOT NULL THEN h.attempt_id END AS attempt_id,
        NULL::bigint AS reporter_id, NULL::uuid AS op_id, NULL::int AS worker_id, 4::smallint AS ending,
        0 AS charge, 0::float8 AS delay_s, false AS is_lost, false AS is_excluded, false AS is_crash, false AS is_oom
    FROM hit h
),
