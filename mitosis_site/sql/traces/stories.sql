-- The whole story of tasks that ended, event by event. By archived_tasks_pkey, task_events_task.
-- Called by: mitosis_site.tracing.export.
SELECT t.uuid, g.name, s.uuid, t.outcome, e.kind, e.at, e.attempt, r.uuid
FROM archived_tasks t
JOIN groups g ON g.id = t.group_id
LEFT JOIN task_suites s ON s.id = t.suite_id
JOIN task_events e ON e.task_id = t.id
LEFT JOIN runners r ON r.id = e.runner_id
WHERE t.id = ANY (%(task_ids)s::bigint[])
ORDER BY t.id, e.seq
