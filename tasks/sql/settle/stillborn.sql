-- New tasks whose upstream had already ended the wrong way, part 1 of 2. Followed by settle/tail.sql.
-- Run in the transaction that inserted them, so that nobody ever sees them wait.
-- Relies on: active_tasks_pkey, task_dependencies_edge, archived_tasks_pkey. Called by: tasks.store.end_stillborn.
WITH RECURSIVE
hit AS MATERIALIZED (
    SELECT q.ord, t.id AS task_id, t.uuid, t.suite_id, t.dependents
    FROM unnest(%(task_ids)s::bigint[]) WITH ORDINALITY AS q (task_id, ord)
    CROSS JOIN LATERAL (
        SELECT f.* FROM active_tasks f WHERE f.id = q.task_id AND f.state = 0 FOR UPDATE SKIP LOCKED
    ) t
),
item AS MATERIALIZED (SELECT h.ord, NULL::text AS refusal FROM hit h),
verdict AS MATERIALIZED (
    SELECT h.ord, h.task_id, h.uuid, h.suite_id, h.dependents, NULL::timestamptz AS started_at, 0 AS failures,
        'end' AS action, 5::smallint AS outcome, NULL::int AS exit_status, NULL::smallint AS msg,
        'an upstream task did not end as required' AS reason, NULL::text AS result, NULL::bigint AS attempt_id,
        NULL::bigint AS reporter_id, NULL::uuid AS op_id, NULL::int AS worker_id, 4::smallint AS ending, 0 AS charge,
        0::float8 AS delay_s, false AS is_lost, false AS is_excluded, false AS is_crash, false AS is_oom
    FROM hit h
),
