-- Suites by state; of the live ones how many are blocked, paused, or have work and no host.
-- By task_suites_live, active_tasks_claim, suite_assignments_live_suite; called by: mitosis_site.metrics.queue.
SELECT s.state, count(*)::bigint,
    (count(*) FILTER (WHERE s.state IN (0, 1) AND s.blocked_at IS NOT NULL))::bigint,
    (count(*) FILTER (WHERE s.state IN (0, 1) AND s.paused_at IS NOT NULL))::bigint,
    (count(*) FILTER (
        WHERE s.state IN (0, 1) AND s.blocked_at IS NULL AND s.paused_at IS NULL
            AND EXISTS (SELECT FROM active_tasks t WHERE t.is_ready AND t.queue_id = -s.id)
            AND NOT EXISTS (SELECT FROM suite_assignments a WHERE a.suite_id = s.id AND a.released_at IS NULL)
    ))::bigint
FROM task_suites s
GROUP BY s.state
