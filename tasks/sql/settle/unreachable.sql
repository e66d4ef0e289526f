-- Waiting tasks whose resources are on a runner that left for good, or that refused them, part 1 of 3. Followed by
-- settle/end_failed.sql and settle/tail.sql. They end as failed: nobody else may run them, and they would wait for ever.
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
