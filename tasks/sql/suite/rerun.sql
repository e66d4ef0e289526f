-- New tasks made after ended ones: same work, new identity, no failures yet, and no more urgent than the group may be
-- now. The caller holds the suite's row.
-- Relies on: archived_tasks_pkey, groups_pkey, task_reruns_original (a task is rerun once). Called by:
-- tasks.services.suite_rerun.
WITH asked AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %(old_ids)s::bigint[], %(new_ids)s::bigint[], %(lanes)s::bigint[], %(waiting)s::int[], %(dependents)s::int[]
    ) WITH ORDINALITY AS q (old_id, new_id, lane, waiting_on, dependents, ord)
),
numbered AS (
    UPDATE groups
    SET task_count = task_count + (SELECT count(*) FROM asked)
    WHERE id = %(group_id)s::bigint
    RETURNING task_count - (SELECT count(*) FROM asked) AS base, priority_ceiling
),
inserted AS (
    INSERT INTO active_tasks (
        id, uuid, group_id, creator_id, number, suite_id, priority, tags, labels, lane, timeout_s, spec, state,
        waiting_on, dependents, max_failures, max_attempts, backoff_s, backoff_max_s, retry_on, concurrency_key,
        affinity, resource_refs, middleware, limits, pinned_runner_id
    )
    SELECT q.new_id, gen_random_uuid(), a.group_id, %(creator_id)s::bigint, n.base + q.ord, a.suite_id,
        least(a.priority, n.priority_ceiling), a.tags, a.labels, q.lane, a.timeout_s, a.spec, CASE WHEN q.waiting_on > 0 THEN 0 ELSE 1 END, q.waiting_on,
        q.dependents, a.max_failures, a.max_attempts, a.backoff_s, a.backoff_max_s, a.retry_on, a.concurrency_key,
        a.affinity, a.resource_refs, a.middleware, a.limits, a.pinned_runner_id
    FROM asked q
    CROSS JOIN numbered n
    JOIN archived_tasks a ON a.id = q.old_id
    RETURNING id, uuid, number, group_id, suite_id, state
),
known AS (
    INSERT INTO task_reruns (task_id, task_uuid, original_id, original_uuid)
    SELECT i.id, i.uuid, a.id, a.uuid
    FROM inserted i
    JOIN asked q ON q.new_id = i.id
    JOIN archived_tasks a ON a.id = q.old_id
    RETURNING task_id, original_uuid
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id, data)
    SELECT 0, i.state, 1, 0, i.group_id, i.suite_id, i.id, jsonb_build_object('rerun_of', k.original_uuid)
    FROM inserted i
    JOIN known k ON k.task_id = i.id
),
counted AS (
    INSERT INTO suite_count_deltas (suite_id, total, pending)
    SELECT i.suite_id, count(*), count(*) FROM inserted i GROUP BY i.suite_id
)
SELECT i.id, i.uuid, i.number, k.original_uuid
FROM inserted i
JOIN known k ON k.task_id = i.id
ORDER BY i.number
