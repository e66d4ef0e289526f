-- Waiting tasks (`hit`) end as failed, with one reason for all of them, part 2 of 3. Between suite/hopeless.sql or
-- settle/unreachable.sql and settle/tail.sql. Relies on: nothing. Called by: tasks.services.suite_hopeless and unreachable.
item AS MATERIALIZED (SELECT h.ord, NULL::text AS refusal FROM hit h),
verdict AS MATERIALIZED (
    SELECT h.ord, h.task_id, h.uuid, h.suite_id, h.dependents, h.started_at, h.failures, 'end' AS action,
        1::smallint AS outcome, NULL::int AS exit_status, NULL::smallint AS msg,
        %(reason)s::text AS reason, NULL::text AS result,
        -- A lost attempt is closed for good: its late report must not find a task any more.
        CASE WHEN h.lost_runner_id IS NOT NULL THEN h.attempt_id END AS attempt_id,
        NULL::bigint AS reporter_id, NULL::uuid AS op_id, NULL::int AS worker_id, 4::smallint AS ending,
        0 AS charge, 0::float8 AS delay_s, false AS is_lost, false AS is_excluded, false AS is_crash, false AS is_oom
    FROM hit h
),
