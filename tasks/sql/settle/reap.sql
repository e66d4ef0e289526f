-- Reclaim, part 1 of 2: tasks whose runner's lease ran out, or whose runner was removed. Followed by settle/tail.sql.
-- Chosen by fact (an expired lease that still holds tasks), so a crash half-way costs nothing: run it again.
-- The caller keeps the uptime guard. Relies on: active_tasks_runner, active_tasks_lost, runners_pkey.
-- Called by: tasks.store.reap.
WITH RECURSIVE
expired AS MATERIALIZED (
    SELECT l.runner_id
    FROM runner_leases l
    WHERE %(runner_ids)s::bigint[] IS NULL
        AND l.expires_at < clock_timestamp() - make_interval(secs => %(grace_s)s::float8)
        AND (SELECT t.id FROM active_tasks t WHERE t.runner_id = l.runner_id LIMIT 1) IS NOT NULL
    ORDER BY l.runner_id
    LIMIT %(max_runners)s::int
    FOR UPDATE OF l SKIP LOCKED
),
dead AS (
    SELECT e.runner_id FROM expired e
    UNION
    SELECT unnest(%(runner_ids)s::bigint[])
),
-- SKIP LOCKED here as well: a connecting session locks its runner first and the lease second.
fenced AS MATERIALIZED (
    SELECT r.id
    FROM dead d
    JOIN runners r ON r.id = d.runner_id
    ORDER BY r.id
    FOR NO KEY UPDATE OF r SKIP LOCKED
),
bumped AS (
    UPDATE runners r
    SET session_epoch = r.session_epoch + 1, conn_state = 2, updated_at = clock_timestamp()
    FROM fenced f
    WHERE r.id = f.id
    RETURNING r.id, r.session_epoch
),
-- The lease carries the new epoch, so the heartbeats of the fenced session no longer renew it.
orphaned AS (
    UPDATE runner_leases l
    SET session_epoch = b.session_epoch
    FROM bumped b
    JOIN expired e ON e.runner_id = b.id
    WHERE l.runner_id = b.id
),
-- A removed runner has no say in what it lost before either.
disowned AS (
    UPDATE active_tasks t
    SET lost_runner_id = NULL, lost_charge = 0, started_at = NULL, updated_at = clock_timestamp()
    WHERE t.id = ANY (ARRAY(
        SELECT f.id
        FROM active_tasks f
        WHERE f.lost_runner_id = ANY (%(runner_ids)s::bigint[]) AND NOT %(adoptable)s::bool
        FOR UPDATE SKIP LOCKED
    ))
),
hit AS MATERIALIZED (
    SELECT row_number() OVER () AS ord, n.*
    FROM (
        SELECT t.id AS task_id, t.uuid, t.suite_id, t.dependents, t.started_at, t.failures, t.attempt_id,
            t.runner_id AS reporter_id, t.cancel_requested_at,
            CASE WHEN %(charge)s::bool AND t.started_at IS NOT NULL THEN 1 ELSE 0 END AS charge,
            t.max_failures, t.attempt, t.max_attempts
        FROM active_tasks t
        WHERE t.runner_id = ANY (ARRAY(SELECT f.id FROM fenced f))
        ORDER BY t.runner_id
        LIMIT %(max_tasks)s::int
        FOR UPDATE OF t SKIP LOCKED
    ) n
),
ruled AS (
    SELECT h.*,
        CASE
            WHEN h.cancel_requested_at IS NOT NULL THEN 'end'
            WHEN h.failures + h.charge >= h.max_failures THEN 'end'
            WHEN h.attempt >= h.max_attempts THEN 'end'
            ELSE 'requeue'
        END AS action
    FROM hit h
),
item AS MATERIALIZED (SELECT h.ord, NULL::text AS refusal FROM hit h),
verdict AS MATERIALIZED (
    SELECT r.ord, r.task_id, r.uuid, r.suite_id, r.dependents, r.started_at, r.failures, r.action,
        CASE WHEN r.action <> 'end' THEN NULL WHEN r.cancel_requested_at IS NOT NULL THEN 4 ELSE 1 END::smallint AS outcome,
        NULL::int AS exit_status,
        CASE WHEN r.cancel_requested_at IS NOT NULL THEN 6 END::smallint AS msg,
        %(reason)s::text AS reason, NULL::text AS result, r.attempt_id, r.reporter_id, NULL::uuid AS op_id,
        NULL::int AS worker_id, 1::smallint AS ending, r.charge, 0::float8 AS delay_s,
        r.action = 'requeue' AND %(adoptable)s::bool AS is_lost,
        false AS is_excluded, false AS is_crash, false AS is_oom
    FROM ruled r
),
