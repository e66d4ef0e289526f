-- Suites with nothing left to do, locked: Closed ones at once, Open ones once no submit came for settle_seconds since they
-- were opened. A suite that never had a task is not among them.
-- By task_suites_live and active_tasks_suite; called by suites.services.sweeps, followed by apply/drained.sql.
SELECT s.id
FROM task_suites s
WHERE s.state IN (0, 1)
    AND s.submit_count > 0
    AND (
        s.state = 1
        OR (
            s.last_task_submitted_at >= s.opened_at
            AND s.last_task_submitted_at <= clock_timestamp() - make_interval(secs => s.settle_seconds)
        )
    )
    AND NOT EXISTS (SELECT FROM active_tasks t WHERE t.suite_id = s.id)
ORDER BY s.id
LIMIT %(batch)s
FOR NO KEY UPDATE OF s SKIP LOCKED
