-- The other end of edges.sql, apart because a task may wait and be waited for, and one statement changes a row once.
-- Relies on: active_tasks_pkey. Called by: mitosis_site.importing.run.
UPDATE active_tasks t SET dependents = t.dependents + q.n
FROM unnest(%(ids)s::bigint[], %(counts)s::int[]) AS q (id, n)
WHERE t.id = q.id
