-- What could be claimed at once: ready, not backing off, in no paused, blocked or ended suite; with the number of hosts
-- that would take all of a suite's at once. By active_tasks_claim; called by: mitosis_site.metrics.queue.
WITH ready AS (
    SELECT t.group_id, t.suite_id, count(*)::bigint AS tasks
    FROM active_tasks t
    WHERE t.is_ready AND t.not_before <= clock_timestamp()
    GROUP BY t.group_id, t.suite_id
)
SELECT g.name, CASE WHEN r.suite_id IS NULL THEN 'worker' ELSE 'manager' END AS runner, sum(r.tasks)::bigint,
    sum(ceil(r.tasks::numeric / greatest((s.worker_schedule ->> 'worker_count')::int, 1)))::bigint
FROM ready r
JOIN groups g ON g.id = r.group_id
LEFT JOIN task_suites s ON s.id = r.suite_id
WHERE r.suite_id IS NULL OR (s.state IN (0, 1) AND s.paused_at IS NULL AND s.blocked_at IS NULL)
GROUP BY 1, 2
