-- Deadlines of held tasks, part 1 of 2: far over their timeout, or silent after a cancel. Followed by settle/tail.sql.
-- The agent enforces both; this is for the one that does not. The attempt is fenced: a late report is stale.
-- Relies on: active_tasks_runner, which holds only what is leased now. Called by: tasks.store.end_overdue.
WITH RECURSIVE
hit AS MATERIALIZED (
    SELECT row_number() OVER () AS ord, n.*
    FROM (
        SELECT t.id AS task_id, t.uuid, t.suite_id, t.dependents, t.started_at, t.failures, t.attempt_id,
            t.runner_id AS reporter_id, t.cancel_requested_at
        FROM active_tasks t
        WHERE t.runner_id IS NOT NULL
            AND (
                t.cancel_requested_at < clock_timestamp() - make_interval(secs => %(cancel_silence_s)s::float8)
                OR t.started_at < clock_timestamp() - make_interval(
                    -- Workers of the existing wire also fetch and upload within this time.
                    secs => t.timeout_s + CASE WHEN t.is_exclusive THEN %(exclusive_grace_s)s::float8
                        ELSE %(grace_s)s::float8 END
                )
            )
        -- The order of the index that holds only leased tasks.
        ORDER BY t.runner_id
        LIMIT %(max_tasks)s::int
        FOR UPDATE OF t SKIP LOCKED
    ) n
),
item AS MATERIALIZED (SELECT h.ord, NULL::text AS refusal FROM hit h),
verdict AS MATERIALIZED (
    SELECT h.ord, h.task_id, h.uuid, h.suite_id, h.dependents, h.started_at, h.failures, 'end' AS action,
        CASE WHEN h.cancel_requested_at IS NOT NULL THEN 4 ELSE 2 END::smallint AS outcome, NULL::int AS exit_status,
        CASE WHEN h.cancel_requested_at IS NOT NULL THEN 6 ELSE 1 END::smallint AS msg,
        CASE WHEN h.cancel_requested_at IS NOT NULL THEN 'the runner did not answer the cancellation'
            ELSE 'the runner did not stop it at its timeout' END AS reason,
        NULL::text AS result, h.attempt_id, h.reporter_id, NULL::uuid AS op_id, NULL::int AS worker_id,
        4::smallint AS ending, 0 AS charge, 0::float8 AS delay_s, false AS is_lost, false AS is_excluded,
        false AS is_crash, false AS is_oom
    FROM hit h
),
