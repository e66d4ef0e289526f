-- Submit a batch of tasks of one group: rows, their first events, the group's counter, the suite's counts.
-- `rows` is a JSON array in submission order; ids grow in that order, which is the order of claims.
-- Relies on: groups_pkey. Called by: tasks.store.insert_tasks.
WITH r AS MATERIALIZED (
    SELECT *
    FROM ROWS FROM (
        jsonb_to_recordset(%(rows)s::jsonb) AS (
            id bigint, uuid uuid, priority int, tags text[], labels text[], lane bigint, timeout_s int, spec jsonb,
            state smallint, waiting_on int, dependents int, max_failures int, max_attempts int, backoff_s float8,
            backoff_max_s float8, retry_on jsonb, not_before timestamptz, concurrency_key text, affinity jsonb,
            resource_refs jsonb, middleware jsonb, limits jsonb, pinned_runner_id bigint
        )
    ) WITH ORDINALITY
),
numbered AS (
    UPDATE groups
    SET task_count = task_count + (SELECT count(*) FROM r)
    WHERE id = %(group_id)s::bigint
    RETURNING task_count - (SELECT count(*) FROM r) AS base
),
inserted AS (
    INSERT INTO active_tasks (
        id, uuid, group_id, creator_id, number, suite_id, priority, tags, labels, lane, timeout_s, spec, state,
        waiting_on, dependents, max_failures, max_attempts, backoff_s, backoff_max_s, retry_on, not_before,
        concurrency_key, affinity, resource_refs, middleware, limits, pinned_runner_id
    )
    SELECT coalesce(o.id, nextval('active_tasks_id_seq')), o.uuid, %(group_id)s::bigint, %(creator_id)s::bigint,
        n.base + o.ordinality, %(suite_id)s::bigint, o.priority, o.tags, o.labels, o.lane, o.timeout_s, o.spec, o.state,
        o.waiting_on, o.dependents, o.max_failures, o.max_attempts, o.backoff_s, o.backoff_max_s, o.retry_on,
        coalesce(o.not_before, clock_timestamp()), o.concurrency_key, o.affinity, o.resource_refs, o.middleware, o.limits,
        o.pinned_runner_id
    FROM numbered n
    CROSS JOIN (SELECT * FROM r ORDER BY r.ordinality) o
    RETURNING id, uuid, number, state
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id)
    SELECT 0, i.state, 1, 0, %(group_id)s::bigint, %(suite_id)s::bigint, i.id
    FROM inserted i
),
counted AS (
    INSERT INTO suite_count_deltas (suite_id, total, pending)
    SELECT %(suite_id)s::bigint, count(*), count(*)
    FROM inserted
    WHERE %(suite_id)s::bigint IS NOT NULL
    HAVING count(*) > 0
)
SELECT i.id, i.uuid, i.number FROM inserted i ORDER BY i.number
