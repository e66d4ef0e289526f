-- Reports about attempts, part 1 of 2: what each one means for its task. Followed by settle/tail.sql.
-- op: 0 commit, 1 abort (given up, back to the queue), 2 release (never started), 3 failure (the runner
-- retries it), 4 lost (the runner does not know it). Fenced by attempt and owner; only a commit is taken from
-- an attempt that was lost and not claimed again.
-- Relies on: task_attempts_pkey, active_tasks_pkey. Called by: tasks.store.settle.
WITH RECURSIVE
asked AS MATERIALIZED (
    SELECT q.*, row_number() OVER (PARTITION BY q.attempt_id ORDER BY q.ord) AS repetition
    FROM unnest(
        %(attempt_ids)s::bigint[], %(runner_ids)s::bigint[], %(ops)s::smallint[], %(op_ids)s::uuid[],
        %(outcomes)s::smallint[], %(exit_statuses)s::int[], %(msgs)s::smallint[], %(reasons)s::text[],
        %(results)s::text[], %(charges)s::bool[], %(excludes)s::bool[], %(death_limits)s::int[],
        %(worker_ids)s::int[]
    ) WITH ORDINALITY AS q (
        attempt_id, runner_id, op, op_id, outcome, exit_status, msg, reason,
        result, charge, exclude, death_limit, worker_id, ord
    )
),
hit AS MATERIALIZED (
    SELECT q.ord, q.attempt_id, q.runner_id AS reporter_id, q.op, q.op_id, q.outcome AS said, q.exit_status, q.msg,
        q.reason, q.result, q.exclude, q.death_limit, q.worker_id,
        t.id AS task_id, t.uuid, t.suite_id, t.dependents, t.started_at, t.cancel_requested_at, t.finish_cancelled,
        t.failures, t.max_failures, t.attempt, t.max_attempts,
        -- Only what may have started is charged.
        CASE
            WHEN q.op = 2 THEN 0
            WHEN q.op = 4 THEN (t.started_at IS NOT NULL)::int
            ELSE q.charge::int
        END AS charge,
        least(
            coalesce(t.backoff_max_s, %(backoff_max_s)s::float8),
            coalesce(t.backoff_s, %(backoff_s)s::float8) * power(2::float8, least(t.failures, 30))
        ) * (0.5 + random() / 2) AS delay_s,
        q.op = 0 AND coalesce(
            CASE q.outcome
                WHEN 1 THEN
                    CASE
                        WHEN q.exit_status & 127 <> 0 THEN t.retry_on -> 'signals' @> to_jsonb(q.exit_status & 127)
                        ELSE t.retry_on -> 'exit_codes' @> to_jsonb(q.exit_status >> 8)
                    END
                WHEN 2 THEN t.retry_on -> 'timeout' = 'true'
                WHEN 3 THEN t.retry_on -> 'oom' = 'true'
                    OR (t.limits ->> 'memory')::float8 < (t.limits -> 'on_oom' ->> 'max')::float8
            END,
            false
        ) AS may_retry
    FROM asked q
    CROSS JOIN LATERAL (SELECT f.task_id FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a
    CROSS JOIN LATERAL (
        SELECT f.*
        FROM active_tasks f
        WHERE f.id = a.task_id
            AND f.attempt_id = q.attempt_id
            AND q.runner_id = coalesce(f.runner_id, f.lost_runner_id)
            AND (q.op = 0 OR f.runner_id IS NOT NULL)
            AND (q.op <> 2 OR f.state = 2)
            AND f.last_op_id IS DISTINCT FROM q.op_id
        FOR UPDATE SKIP LOCKED
    ) t
    WHERE q.repetition = 1
),
-- Why the others are refused; looked up for them alone.
item AS MATERIALIZED (
    SELECT q.ord,
        CASE
            WHEN a.id IS NULL THEN 'invalid'
            WHEN a.runner_id <> q.runner_id THEN 'forbidden'
            WHEN a.op_id = q.op_id OR (t.attempt_id = a.id AND t.last_op_id = q.op_id) THEN 'ok_duplicate'
            -- Entitled, but locked, or waiting behind another report on the same attempt.
            WHEN t.attempt_id = a.id AND q.runner_id = coalesce(t.runner_id, t.lost_runner_id)
                AND (q.op <> 2 OR t.state = 2) AND (q.op = 0 OR t.runner_id IS NOT NULL) THEN 'busy'
            WHEN t.attempt_id = a.id AND t.runner_id = q.runner_id THEN 'invalid'
            ELSE 'stale_attempt'
        END AS refusal
    FROM asked q
    LEFT JOIN LATERAL (
        SELECT f.id, f.task_id, f.runner_id, f.op_id FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0
    ) a ON true
    LEFT JOIN LATERAL (
        SELECT f.attempt_id, f.last_op_id, f.runner_id, f.lost_runner_id, f.state
        FROM active_tasks f
        WHERE f.id = a.task_id
        OFFSET 0
    ) t ON true
    WHERE q.ord NOT IN (SELECT h.ord FROM hit h)
),
deaths AS MATERIALIZED (
    SELECT h.ord, coalesce(f.failure_count, 0) + 1 AS n
    FROM hit h
    LEFT JOIN LATERAL (
        SELECT e.failure_count
        FROM task_execution_failures e
        WHERE e.task_id = h.task_id AND e.runner_id = h.reporter_id
        OFFSET 0
    ) f ON true
    WHERE h.op = 3
),
ruled AS (
    SELECT h.*,
        h.exclude OR coalesce(d.n >= h.death_limit, false) AS is_excluded,
        CASE
            WHEN h.cancel_requested_at IS NOT NULL THEN 'end'
            WHEN h.op = 0 AND NOT h.may_retry THEN 'end'
            WHEN h.failures + greatest(h.charge, h.may_retry::int) >= h.max_failures THEN 'end'
            WHEN h.op = 3 AND NOT coalesce(d.n >= h.death_limit, false) THEN 'keep'
            WHEN h.attempt >= h.max_attempts THEN 'end'
            ELSE 'requeue'
        END AS action
    FROM hit h
    LEFT JOIN deaths d ON d.ord = h.ord
),
verdict AS MATERIALIZED (
    SELECT r.ord, r.task_id, r.uuid, r.suite_id, r.dependents, r.started_at, r.failures, r.action, r.attempt_id,
        r.reporter_id, r.op_id, r.result, r.exit_status, r.reason, r.worker_id,
        CASE
            WHEN r.cancel_requested_at IS NOT NULL THEN 4
            WHEN r.action <> 'end' THEN NULL
            WHEN r.op <> 0 THEN 1
            WHEN r.finish_cancelled AND r.said = 0 THEN 4
            ELSE r.said
        END::smallint AS outcome,
        CASE WHEN r.cancel_requested_at IS NOT NULL THEN coalesce(r.msg, 6) ELSE r.msg END::smallint AS msg,
        CASE
            WHEN r.op = 0 THEN CASE WHEN r.action = 'end' THEN 0 ELSE 5 END
            WHEN r.op = 2 THEN 3
            WHEN r.op = 4 THEN 1
            ELSE 2
        END::smallint AS ending,
        greatest(r.charge, (r.may_retry AND r.action = 'requeue')::int) AS charge,
        CASE WHEN r.action = 'requeue' AND r.op NOT IN (2, 4) THEN r.delay_s ELSE 0 END AS delay_s,
        r.op = 4 AS is_lost,
        r.is_excluded AND r.action = 'requeue' AS is_excluded,
        r.op IN (1, 3) AND r.charge > 0 AS is_crash,
        r.said = 3 AS is_oom
    FROM ruled r
),
