-- A runner submits a task that waits for the one it is finishing: same group, creator and suite, condition `any`.
-- The new task's uuid is the report's op_id, so a repeated report finds it instead of making another.
-- Relies on: task_attempts_pkey, active_tasks_pkey, active_tasks_uuid_key. Called by: tasks.services.report.
WITH known AS MATERIALIZED (
    SELECT t.number, t.upstream_task_id FROM active_tasks t WHERE t.uuid = %(uuid)s::uuid
    UNION ALL
    SELECT t.number, t.upstream_task_id FROM archived_tasks t WHERE t.uuid = %(uuid)s::uuid
),
hit AS MATERIALIZED (
    SELECT t.id, t.uuid, t.group_id, t.creator_id, t.suite_id
    FROM active_tasks t
    WHERE t.id = (SELECT a.task_id FROM task_attempts a WHERE a.id = %(attempt_id)s::bigint)
        AND t.attempt_id = %(attempt_id)s::bigint
        AND t.runner_id = %(runner_id)s::bigint
        AND t.group_id = %(group_id)s::bigint
        AND t.state = 4
        AND NOT EXISTS (SELECT FROM known)
    FOR UPDATE OF t SKIP LOCKED
),
numbered AS (
    UPDATE groups g SET task_count = g.task_count + 1
    FROM hit h
    WHERE g.id = h.group_id
    RETURNING g.task_count AS number
),
inserted AS (
    INSERT INTO active_tasks (
        uuid, group_id, creator_id, number, suite_id, priority, tags, labels, lane, timeout_s, spec, state, waiting_on,
        upstream_task_id, upstream_task_uuid
    )
    SELECT %(uuid)s::uuid, h.group_id, h.creator_id, n.number, h.suite_id, %(priority)s::int, %(tags)s::text[],
        %(labels)s::text[], %(lane)s::bigint, %(timeout_s)s::int, %(spec)s::jsonb, 0, 1, h.id, h.uuid
    FROM hit h
    CROSS JOIN numbered n
    RETURNING id, number, group_id, suite_id, upstream_task_id
),
joined AS (
    INSERT INTO task_dependencies (task_id, upstream_id, condition)
    SELECT i.id, i.upstream_task_id, 1 FROM inserted i
),
linked AS (
    UPDATE active_tasks t
    SET downstream_task_uuid = %(uuid)s::uuid, dependents = t.dependents + 1, updated_at = clock_timestamp()
    FROM inserted i
    WHERE t.id = i.upstream_task_id AND t.id = (SELECT h.id FROM hit h)
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id, runner_id)
    SELECT 0, 0, 1, 0, i.group_id, i.suite_id, i.id, %(runner_id)s::bigint
    FROM inserted i
),
counted AS (
    INSERT INTO suite_count_deltas (suite_id, total, pending)
    SELECT i.suite_id, 1, 1 FROM inserted i WHERE i.suite_id IS NOT NULL
)
SELECT
    CASE
        WHEN i.number IS NOT NULL THEN 'ok'
        WHEN a.id IS NULL THEN 'invalid'
        WHEN a.runner_id <> %(runner_id)s::bigint THEN 'forbidden'
        WHEN k.upstream_task_id = a.task_id THEN 'ok_duplicate'
        WHEN t.attempt_id = a.id AND t.runner_id = a.runner_id THEN
            CASE WHEN t.state = 4 AND t.group_id = %(group_id)s::bigint AND k.number IS NULL THEN 'busy' ELSE 'invalid' END
        ELSE 'stale_attempt'
    END AS answer,
    coalesce(i.number, k.number) AS number
FROM (SELECT) AS one
LEFT JOIN task_attempts a ON a.id = %(attempt_id)s::bigint
LEFT JOIN LATERAL (SELECT f.* FROM active_tasks f WHERE f.id = a.task_id OFFSET 0) t ON true
LEFT JOIN inserted i ON true
LEFT JOIN known k ON true
