-- Waiting tasks of the import and what they wait for: condition `any`, as a downstream task of a runner has it.
-- Only tasks without an edge yet, so that a repetition finds nothing to do.
-- Relies on: active_tasks_uuid_key, task_dependencies_edge. Called by: mitosis_site.importing.run.
WITH waiting AS MATERIALIZED (
    SELECT t.id, up.id AS upstream_id
    FROM active_tasks t
    JOIN active_tasks up ON up.uuid = t.upstream_task_uuid AND up.id < t.id
    WHERE t.uuid = ANY (%(uuids)s::uuid[])
        AND t.state = 0
        AND NOT EXISTS (SELECT FROM task_dependencies d WHERE d.task_id = t.id)
),
joined AS (
    INSERT INTO task_dependencies (task_id, upstream_id, condition)
    SELECT w.id, w.upstream_id, 1 FROM waiting w
),
linked AS (
    UPDATE active_tasks t SET upstream_task_id = w.upstream_id FROM waiting w WHERE t.id = w.id
),
held AS (
    SELECT w.upstream_id AS id, count(*)::int AS n FROM waiting w GROUP BY w.upstream_id
)
SELECT coalesce(sum(h.n), 0)::int, array_agg(h.id) FILTER (WHERE h.id IS NOT NULL), array_agg(h.n)
FROM held h
