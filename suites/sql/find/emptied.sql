-- Of the given suites, those that were closed and have nothing left to do, locked.
-- By task_suites_pkey and active_tasks_suite; called by suites.services.sweeps, followed by apply/drained.sql, and by
-- managers.services.early_end to see whether it is worth a transaction.
SELECT s.id
FROM task_suites s
WHERE s.id = ANY (%(suite_ids)s::bigint[])
    AND s.state = 1
    AND s.submit_count > 0
    AND NOT EXISTS (SELECT FROM active_tasks t WHERE t.suite_id = s.id)
ORDER BY s.id
FOR NO KEY UPDATE OF s SKIP LOCKED
