-- Suites as their hosts need them, by engagement. By suite_assignments_pkey and task_suites_pkey; called by
-- managers.services.session_suites when a manager has to be told what it was given.
SELECT a.id, r.uuid, s.uuid, coalesce(s.name, ''), coalesce(s.description, ''), s.group_id, g.name, s.tags, s.labels, s.priority,
    s.worker_schedule::text, s.env_preparation::text, s.env_cleanup::text, s.limits::text, s.on_partition
FROM suite_assignments a
JOIN runners r ON r.id = a.manager_id
JOIN task_suites s ON s.id = a.suite_id
JOIN groups g ON g.id = s.group_id
WHERE a.id = ANY (%(assignment_ids)s::bigint[])
