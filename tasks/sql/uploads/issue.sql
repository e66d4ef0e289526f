-- Archives that runners are about to upload: the row of each, and its growth charged to the storage of its group. What
-- older attempts of the same task were charged is given back. Waits for no row: whoever finds one locked comes again.
-- A quota is met by the requests in their order; one that is refused for it may fit alone, after a larger one went.
-- Relies on: task_attempts_pkey, active_tasks_pkey, artifacts_task, groups_pkey. Called by: tasks.services.attempt_uploads.
WITH asked AS MATERIALIZED (
    SELECT q.*, row_number() OVER (PARTITION BY q.attempt_id, q.content_type ORDER BY q.ord) AS repetition
    FROM unnest(
        %(attempt_ids)s::bigint[], %(runner_ids)s::bigint[], %(content_types)s::smallint[], %(sizes)s::bigint[],
        %(key_patterns)s::text[]
    ) WITH ORDINALITY AS q (attempt_id, runner_id, content_type, size, key_pattern, ord)
),
held AS MATERIALIZED (
    SELECT q.ord, q.content_type, q.size, q.key_pattern, t.id AS task_id, t.uuid, t.attempt, t.group_id
    FROM asked q
    CROSS JOIN LATERAL (SELECT f.task_id FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a
    CROSS JOIN LATERAL (SELECT f.* FROM active_tasks f WHERE f.id = a.task_id OFFSET 0) t
    WHERE q.repetition = 1
        AND t.attempt_id = q.attempt_id
        AND q.runner_id IN (t.runner_id, t.lost_runner_id)
),
-- What runners uploaded for these tasks before; attempt 0 is the users' own.
present AS MATERIALIZED (
    SELECT f.id, f.task_id, f.attempt, f.content_type, f.size
    FROM artifacts f
    WHERE f.task_id = ANY (ARRAY(SELECT h.task_id FROM held h)) AND f.attempt > 0
    FOR UPDATE SKIP LOCKED
),
blocked AS MATERIALIZED (
    SELECT f.task_id
    FROM artifacts f
    WHERE f.task_id = ANY (ARRAY(SELECT h.task_id FROM held h))
        AND f.attempt > 0
        AND f.id <> ALL (ARRAY(SELECT p.id FROM present p))
),
payers AS MATERIALIZED (
    SELECT g.id, g.name, g.state, g.storage_used, g.storage_quota
    FROM groups g
    WHERE g.id = ANY (ARRAY(SELECT h.group_id FROM held h))
    FOR NO KEY UPDATE SKIP LOCKED
),
wanted AS MATERIALIZED (
    SELECT h.*, p.id AS artifact_id, greatest(0, h.size - coalesce(p.size, 0)) AS growth,
        -- Given back once, by the first request of the task.
        CASE WHEN row_number() OVER (PARTITION BY h.task_id ORDER BY h.ord) = 1 THEN (
            SELECT coalesce(sum(o.size), 0) FROM present o WHERE o.task_id = h.task_id AND o.attempt < h.attempt
        ) ELSE 0 END AS forgiven
    FROM held h
    LEFT JOIN present p ON p.task_id = h.task_id AND p.attempt = h.attempt AND p.content_type = h.content_type
    WHERE h.task_id <> ALL (ARRAY(SELECT b.task_id FROM blocked b))
),
decided AS MATERIALIZED (
    SELECT w.*, g.name,
        CASE
            WHEN g.state <> 0 THEN 'inactive'
            -- Sums as numeric: two of the largest sizes would overflow a bigint.
            WHEN w.growth > 0
                AND g.storage_used + sum(w.growth - w.forgiven) OVER (PARTITION BY w.group_id ORDER BY w.ord)
                    > g.storage_quota THEN 'quota'
            ELSE 'ok'
        END AS answer
    FROM wanted w
    JOIN payers g ON g.id = w.group_id
),
made AS (
    INSERT INTO artifacts (task_id, task_uuid, group_id, attempt, content_type, size, key)
    SELECT d.task_id, d.uuid, d.group_id, d.attempt, d.content_type, d.size,
        replace(replace(d.key_pattern, '{task_uuid}', d.uuid::text), '{attempt}', d.attempt::text)
    FROM decided d
    WHERE d.answer = 'ok' AND d.artifact_id IS NULL
    ON CONFLICT DO NOTHING
    RETURNING task_id, content_type, group_id, size
),
grown AS (
    UPDATE artifacts a
    SET size = greatest(a.size, d.size), updated_at = clock_timestamp()
    FROM decided d
    WHERE d.answer = 'ok'
        AND a.id = d.artifact_id
        AND a.id = ANY (ARRAY(SELECT n.artifact_id FROM decided n))
    RETURNING a.group_id, d.growth
),
given_back AS (
    UPDATE artifacts a
    SET size = 0
    FROM present p
    WHERE a.id = p.id
        AND p.size > 0
        AND EXISTS (
            SELECT FROM decided d WHERE d.task_id = p.task_id AND d.attempt > p.attempt AND d.answer = 'ok'
        )
        AND a.id = ANY (ARRAY(SELECT n.id FROM present n))
    RETURNING a.group_id, p.size
),
charged AS (
    UPDATE groups g
    SET storage_used = g.storage_used + c.delta, updated_at = clock_timestamp()
    FROM (
        SELECT e.group_id, sum(e.delta) AS delta
        FROM (
            SELECT m.group_id, m.size AS delta FROM made m
            UNION ALL
            SELECT n.group_id, n.growth FROM grown n
            UNION ALL
            SELECT b.group_id, -b.size FROM given_back b
        ) e
        GROUP BY e.group_id
    ) c
    WHERE g.id = c.group_id AND c.delta <> 0
)
SELECT q.ord::int,
    CASE
        WHEN d.answer = 'ok' AND d.artifact_id IS NULL AND m.task_id IS NULL THEN 'busy'
        WHEN d.answer IS NOT NULL THEN d.answer
        WHEN h.ord IS NOT NULL OR q.repetition > 1 THEN 'busy'
        WHEN a.runner_id = q.runner_id THEN 'stale'
        ELSE 'absent'
    END AS answer,
    h.uuid, h.attempt, d.artifact_id IS NOT NULL AS is_there, d.name
FROM asked q
LEFT JOIN held h ON h.ord = q.ord
LEFT JOIN decided d ON d.ord = q.ord
LEFT JOIN made m ON m.task_id = d.task_id AND m.content_type = d.content_type
LEFT JOIN LATERAL (SELECT f.runner_id FROM task_attempts f WHERE f.id = q.attempt_id OFFSET 0) a ON true
ORDER BY q.ord
