-- The suites of find/drained.sql or find/emptied.sql complete, if a new look at the tasks finds none: the first look may
-- have been older than a submit that committed before we got the lock, and now that we have it no other can come.
-- By active_tasks_suite.
UPDATE task_suites s
SET state = 2, completed_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE s.id = ANY (%(suite_ids)s::bigint[])
    AND NOT EXISTS (SELECT FROM active_tasks t WHERE t.suite_id = s.id)
RETURNING s.id
