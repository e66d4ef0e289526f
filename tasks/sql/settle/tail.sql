-- What every statement that ends or requeues tasks has in common, part 2 of 2.
-- Expects item(ord, refusal) and verdict, rows already locked: ord, task_id, uuid, suite_id, dependents, started_at,
-- failures, action, outcome, exit_status, msg, reason, result, attempt_id, reporter_id, op_id, worker_id, ending,
-- charge, delay_s, is_lost, is_excluded, is_crash, is_oom.
-- action: end (active row out, archive row in), requeue (back to Ready), keep (charged, the runner goes on).
-- Dependents are released, or end as upstream_failed and drag theirs along, in the same statement.
-- Relies on: active_tasks_pkey, task_dependencies_upstream, task_attempts_pkey. Never waits for a task row: where a
-- dependent is locked or an edge is too new for this snapshot, the report answers `busy` and is tried again.
-- OFFSET 0, = ANY (ARRAY(...)) and scalar subqueries: one index probe per row, see claim/tail.sql.

-- Outcome 5 is upstream_failed. condition: 0 ok, 1 any, 2 failed.
doom AS (
    SELECT v.task_id, v.outcome
    FROM verdict v
    WHERE v.action = 'end' AND v.dependents > 0
    UNION
    SELECT d.task_id, 5::smallint
    FROM doom u
    CROSS JOIN LATERAL (
        SELECT e.task_id, e.condition FROM task_dependencies e WHERE e.upstream_id = u.task_id OFFSET 0
    ) d
    WHERE NOT CASE d.condition WHEN 0 THEN u.outcome = 0 WHEN 1 THEN true ELSE u.outcome IN (1, 2, 3, 5) END
        AND NOT EXISTS (SELECT FROM verdict v WHERE v.task_id = d.task_id)
        -- Its edges outlive a task: one that ended before must not drag its dependents along again.
        AND (SELECT count(*) FROM active_tasks t WHERE t.id = d.task_id) > 0
),
edge AS MATERIALIZED (
    SELECT d.task_id, u.task_id AS upstream_id,
        CASE d.condition WHEN 0 THEN u.outcome = 0 WHEN 1 THEN true ELSE u.outcome IN (1, 2, 3, 5) END AS is_met
    FROM doom u
    CROSS JOIN LATERAL (
        SELECT e.task_id, e.condition FROM task_dependencies e WHERE e.upstream_id = u.task_id OFFSET 0
    ) d
),
child AS MATERIALIZED (
    SELECT t.id, t.dependents
    FROM active_tasks t
    WHERE t.id = ANY (ARRAY(SELECT e.task_id FROM edge e))
        AND NOT EXISTS (SELECT FROM verdict v WHERE v.task_id = t.id)
    ORDER BY t.id
    FOR UPDATE OF t SKIP LOCKED
),
-- True when the graph below cannot be settled now: a child is locked, or a submit added an edge after our snapshot.
torn AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM active_tasks t
        WHERE t.id = ANY (ARRAY(SELECT e.task_id FROM edge e))
            AND NOT EXISTS (SELECT FROM verdict v WHERE v.task_id = t.id)
            AND NOT EXISTS (SELECT FROM child c WHERE c.id = t.id)
    ) OR EXISTS (
        SELECT FROM (
            SELECT v.task_id, v.dependents FROM verdict v WHERE v.action = 'end' AND v.dependents > 0
            UNION ALL
            SELECT c.id, c.dependents FROM child c JOIN doom u ON u.task_id = c.id
        ) n
        WHERE n.dependents <> (SELECT count(*) FROM edge e WHERE e.upstream_id = n.task_id)
    ) AS is_torn
),
done AS MATERIALIZED (
    SELECT v.*
    FROM verdict v
    WHERE NOT (v.action = 'end' AND v.dependents > 0 AND (SELECT is_torn FROM torn))
),
fate AS MATERIALIZED (
    SELECT e.task_id, count(*)::int AS met, bool_or(NOT e.is_met) AS is_doomed
    FROM edge e
    JOIN child c ON c.id = e.task_id
    WHERE NOT (SELECT is_torn FROM torn)
    GROUP BY e.task_id
),
ending AS MATERIALIZED (
    SELECT d.task_id, d.outcome, d.exit_status, d.msg, d.reason, d.result, d.reporter_id, d.op_id, d.charge
    FROM done d
    WHERE d.action = 'end'
    UNION ALL
    SELECT f.task_id, 5::smallint, NULL, NULL, 'an upstream task did not end as required', NULL, NULL, NULL, 0
    FROM fate f
    WHERE f.is_doomed
),
gone AS (
    DELETE FROM active_tasks t
    WHERE t.id = ANY (ARRAY(SELECT e.task_id FROM ending e))
    RETURNING t.*
),
ended AS MATERIALIZED (
    SELECT g.*, e.outcome, e.exit_status, e.msg, e.reason, e.result, e.reporter_id, e.op_id, e.charge
    FROM gone g
    JOIN ending e ON e.task_id = g.id
),
archived AS (
    INSERT INTO archived_tasks (
        id, uuid, group_id, creator_id, number, suite_id, assignment_id, priority, tags, labels, timeout_s, spec,
        attempt, attempt_id, failures, max_failures, max_attempts, backoff_s, backoff_max_s, retry_on,
        concurrency_key, affinity, resource_refs, middleware, limits, pinned_runner_id,
        upstream_task_id, upstream_task_uuid, downstream_task_uuid, started_at, event_seq, created_at, updated_at,
        state, outcome, exit_status, msg, reason, result, runner_id, reporter_uuid, op_id, ended_at
    )
    SELECT
        g.id, g.uuid, g.group_id, g.creator_id, g.number, g.suite_id, g.assignment_id, g.priority, g.tags, g.labels,
        g.timeout_s, g.spec, g.attempt, g.attempt_id, g.failures + g.charge, g.max_failures, g.max_attempts,
        g.backoff_s, g.backoff_max_s, g.retry_on, g.concurrency_key, g.affinity, g.resource_refs, g.middleware,
        g.limits, g.pinned_runner_id, g.upstream_task_id, g.upstream_task_uuid, g.downstream_task_uuid, g.started_at,
        g.event_seq + 1, g.created_at, clock_timestamp(),
        CASE WHEN g.finish_cancelled OR g.outcome IN (2, 4, 5) THEN 4 ELSE 3 END,
        g.outcome, g.exit_status, g.msg, g.reason, g.result::jsonb, coalesce(g.reporter_id, g.runner_id),
        (SELECT r.uuid FROM runners r WHERE r.id = g.reporter_id), g.op_id, clock_timestamp()
    FROM ended g
),
returned AS (
    UPDATE active_tasks t
    SET state = CASE WHEN d.action = 'keep' THEN t.state ELSE 1 END,
        runner_id = CASE WHEN d.action = 'keep' THEN t.runner_id END,
        lost_runner_id = CASE WHEN d.is_lost THEN t.runner_id END,
        lost_charge = CASE WHEN d.is_lost THEN d.charge ELSE 0 END,
        assignment_id = CASE WHEN d.action = 'keep' THEN t.assignment_id END,
        failures = t.failures + d.charge,
        last_op_id = d.op_id,
        finish_cancelled = false,
        -- A lost command may still run; what was given back or crashed does not.
        started_at = CASE WHEN d.is_lost OR d.action = 'keep' THEN t.started_at END,
        not_before = CASE WHEN d.delay_s > 0
            THEN clock_timestamp() + make_interval(secs => d.delay_s) ELSE t.not_before END,
        excluded_runner_ids = CASE WHEN d.is_excluded AND NOT t.excluded_runner_ids @> ARRAY[d.reporter_id]
            THEN t.excluded_runner_ids || d.reporter_id ELSE t.excluded_runner_ids END,
        limits = CASE WHEN d.is_oom AND t.limits -> 'on_oom' IS NOT NULL
            THEN jsonb_set(t.limits, '{memory}', to_jsonb(least(
                (t.limits ->> 'memory')::float8 * (t.limits -> 'on_oom' ->> 'factor')::float8,
                (t.limits -> 'on_oom' ->> 'max')::float8
            )::bigint)) ELSE t.limits END,
        event_seq = t.event_seq + 1,
        updated_at = clock_timestamp()
    FROM done d
    WHERE t.id = d.task_id AND d.action <> 'end' AND t.id = ANY (ARRAY(SELECT n.task_id FROM done n))
    RETURNING t.id, t.uuid, t.group_id, t.suite_id, t.attempt, t.event_seq, t.state, t.failures,
        d.action, d.ending, d.reason, d.reporter_id
),
freed AS (
    UPDATE active_tasks t
    SET waiting_on = t.waiting_on - f.met,
        state = CASE WHEN t.waiting_on > f.met THEN 0 ELSE 1 END,
        event_seq = t.event_seq + CASE WHEN t.waiting_on > f.met THEN 0 ELSE 1 END,
        updated_at = clock_timestamp()
    FROM fate f
    WHERE t.id = f.task_id AND NOT f.is_doomed AND t.id = ANY (ARRAY(SELECT n.task_id FROM fate n))
    RETURNING t.id, t.group_id, t.suite_id, t.attempt, t.event_seq, t.state
),
-- In the order of ids: the update finds its values by halving, not by reading all for each row.
closing AS MATERIALIZED (
    SELECT array_agg(d.attempt_id ORDER BY d.attempt_id) AS ids,
        array_agg(d.ending ORDER BY d.attempt_id) AS endings,
        array_agg(d.outcome ORDER BY d.attempt_id) AS outcomes,
        array_agg(d.exit_status ORDER BY d.attempt_id) AS exit_statuses,
        array_agg(d.reason ORDER BY d.attempt_id) AS reasons,
        array_agg(d.op_id ORDER BY d.attempt_id) AS op_ids,
        array_agg(d.started_at ORDER BY d.attempt_id) AS started_ats
    FROM done d
    WHERE d.action <> 'keep' AND d.attempt_id IS NOT NULL
),
closed AS (
    UPDATE task_attempts a
    SET (ending, outcome, exit_status, reason, op_id, started_at) = (
            SELECT c.endings[n.at], c.outcomes[n.at], c.exit_statuses[n.at], c.reasons[n.at], c.op_ids[n.at],
                c.started_ats[n.at]
            FROM closing c
            CROSS JOIN LATERAL (SELECT width_bucket(a.id, c.ids) AS at OFFSET 0) n
        ),
        ended_at = clock_timestamp()
    WHERE a.id = ANY (ARRAY(SELECT d.attempt_id FROM done d WHERE d.action <> 'keep'))
),
evidence AS (
    INSERT INTO task_execution_failures AS f (
        task_id, task_uuid, suite_id, runner_id, failure_count, error_messages, worker_local_id
    )
    SELECT d.task_id, d.uuid, d.suite_id, d.reporter_id, 1, ARRAY[coalesce(d.reason, '')], d.worker_id
    FROM done d
    WHERE d.is_crash
    ORDER BY d.task_id
    ON CONFLICT (task_id, runner_id) DO UPDATE
    SET failure_count = f.failure_count + 1,
        -- The last 20 texts tell the story; a loop of crashes must not grow a row without end.
        error_messages = (f.error_messages || excluded.error_messages)[greatest(1, cardinality(f.error_messages) - 18):],
        worker_local_id = coalesce(excluded.worker_local_id, f.worker_local_id),
        last_failure_at = clock_timestamp(),
        updated_at = clock_timestamp()
),
counted AS (
    INSERT INTO suite_count_deltas (suite_id, pending, succeeded, failed, cancelled)
    SELECT g.suite_id, -count(*), count(*) FILTER (WHERE g.outcome = 0),
        count(*) FILTER (WHERE g.outcome IN (1, 2, 3, 5)), count(*) FILTER (WHERE g.outcome = 4)
    FROM ended g
    WHERE g.suite_id IS NOT NULL
    GROUP BY g.suite_id
),
logged AS (
    INSERT INTO task_events (kind, state, outcome, seq, attempt, group_id, suite_id, task_id, runner_id, data)
    SELECT 8, NULL, g.outcome, g.event_seq + 1, g.attempt, g.group_id, g.suite_id, g.id,
        coalesce(g.reporter_id, g.runner_id), CASE WHEN g.reason IS NOT NULL THEN jsonb_build_object('reason', g.reason) END
    FROM ended g
    UNION ALL
    SELECT CASE r.action WHEN 'keep' THEN 6 ELSE 5 END, r.state, NULL, r.event_seq, r.attempt, r.group_id, r.suite_id,
        r.id, r.reporter_id, jsonb_build_object('ending', r.ending, 'reason', r.reason)
    FROM returned r
    UNION ALL
    SELECT 1, f.state, NULL, f.event_seq, f.attempt, f.group_id, f.suite_id, f.id, NULL, NULL
    FROM freed f
    WHERE f.state = 1
)
SELECT d.ord::int AS ord, d.action AS answer, d.task_id, d.uuid, d.suite_id, d.outcome, d.failures + d.charge, d.is_excluded
FROM done d
UNION ALL
SELECT v.ord::int, 'busy', v.task_id, v.uuid, v.suite_id, NULL, NULL, NULL
FROM verdict v
WHERE v.action = 'end' AND v.dependents > 0 AND (SELECT is_torn FROM torn)
UNION ALL
SELECT i.ord::int, i.refusal, NULL, NULL, NULL, NULL, NULL, NULL
FROM item i
WHERE i.ord NOT IN (SELECT v.ord FROM verdict v)
ORDER BY ord
