-- Open suites without a submit for a while, whether or not they have tasks left; locked. A suite that never had a task
-- is not among them. By task_suites_auto_close; called by suites.services.sweeps, followed by apply/idle.sql.
SELECT s.id
FROM task_suites s
WHERE s.state = 0
    AND s.last_task_submitted_at < clock_timestamp() - make_interval(secs => %(idle_s)s)
    AND s.opened_at < clock_timestamp() - make_interval(secs => %(idle_s)s)
ORDER BY s.id
LIMIT %(batch)s
FOR NO KEY UPDATE OF s SKIP LOCKED
