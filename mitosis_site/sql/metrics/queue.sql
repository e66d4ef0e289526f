-- Active tasks by group and phase. Reads the whole active table: the queue, never the archive. Called by: mitosis_site.metrics.queue.
SELECT g.name, n.state, n.tasks
FROM (SELECT t.group_id, t.state, count(*)::bigint AS tasks FROM active_tasks t GROUP BY t.group_id, t.state) n
JOIN groups g ON g.id = n.group_id
