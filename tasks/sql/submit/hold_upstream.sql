-- New edges to tasks that exist: counts them on the upstream rows and so keeps those from ending until we commit.
-- An upstream that ends first is not returned; the caller finds it in the archive. Ids ascending: no deadlock.
-- Relies on: active_tasks_uuid_key. Called by: tasks.store.hold_upstream.
WITH asked AS MATERIALIZED (
    SELECT q.uuid, q.edges
    FROM unnest(%(uuids)s::uuid[], %(edges)s::int[]) AS q (uuid, edges)
),
-- Where they are never changes, so it may be read before the lock; by uuid, not by the group's index.
known AS MATERIALIZED (
    SELECT t.id
    FROM asked q
    CROSS JOIN LATERAL (
        SELECT f.id, f.group_id, f.suite_id FROM active_tasks f WHERE f.uuid = q.uuid OFFSET 0
    ) t
    WHERE t.group_id = %(group_id)s::bigint AND t.suite_id IS NOT DISTINCT FROM %(suite_id)s::bigint
),
hit AS MATERIALIZED (
    SELECT t.id, t.uuid
    FROM active_tasks t
    WHERE t.id = ANY (ARRAY(SELECT k.id FROM known k))
    ORDER BY t.id
    FOR UPDATE OF t
)
UPDATE active_tasks t
SET dependents = t.dependents + q.edges
FROM hit h
JOIN asked q ON q.uuid = h.uuid
WHERE t.id = h.id AND t.id = ANY (ARRAY(SELECT n.id FROM hit n))
RETURNING t.uuid, t.id, NULL::smallint AS outcome
