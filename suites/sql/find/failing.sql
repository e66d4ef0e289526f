-- Suites that failed too often, locked. What failed before the last unblocking is forgiven; a rate needs enough ended tasks
-- to mean something. By task_suites_live and suite_count_deltas_suite; called by suites.services.sweeps, followed by
-- apply/failing.sql.
SELECT s.id
FROM task_suites s
CROSS JOIN LATERAL (
    SELECT coalesce(sum(d.failed), 0) - s.forgiven_failed AS failed,
        coalesce(sum(d.failed + d.succeeded), 0) - s.forgiven_failed - s.forgiven_succeeded AS ended
    FROM suite_count_deltas d
    WHERE d.suite_id = s.id
) n
WHERE s.state IN (0, 1)
    AND s.blocked_at IS NULL
    AND (s.max_failures IS NOT NULL OR s.failure_rate IS NOT NULL)
    AND (n.failed >= s.max_failures OR (n.ended >= %(min_ended)s AND n.failed >= s.failure_rate * n.ended))
ORDER BY s.id
LIMIT %(batch)s
FOR NO KEY UPDATE OF s SKIP LOCKED
