-- The groups' counters behind every number that was given out, here or there.
-- Relies on: active_tasks_group, archived_tasks_group. Called by: mitosis_site.importing.run.
UPDATE groups g
SET task_count = greatest(
    g.task_count,
    r.task_count,
    (SELECT max(t.number) FROM active_tasks t WHERE t.group_id = g.id),
    (SELECT max(t.number) FROM archived_tasks t WHERE t.group_id = g.id)
)
FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (name text, task_count bigint)
WHERE g.name = r.name
