-- Tasks of suites that were cancelled a while ago: those that wait, and those claimed after the decision. The suites that
-- have active tasks are found by skipping through the index, so a queue of a million tasks costs one probe per suite.
-- Relies on: active_tasks_suite, task_attempts_pkey. Called by: tasks.services.suite_cancel.
WITH RECURSIVE busy AS (
    (SELECT t.suite_id FROM active_tasks t WHERE t.suite_id IS NOT NULL ORDER BY t.suite_id LIMIT 1)
    UNION ALL
    SELECT n.suite_id
    FROM busy b
    CROSS JOIN LATERAL (
        SELECT t.suite_id FROM active_tasks t WHERE t.suite_id > b.suite_id ORDER BY t.suite_id LIMIT 1
    ) n
)
SELECT t.id
FROM busy b
JOIN task_suites s ON s.id = b.suite_id
JOIN active_tasks t ON t.suite_id = s.id
WHERE s.state = 3
    AND s.cancelled_at < clock_timestamp() - make_interval(secs => %(age_s)s::float8)
    AND (
        t.runner_id IS NULL
        OR (
            t.cancel_requested_at IS NULL
            AND EXISTS (SELECT FROM task_attempts a WHERE a.id = t.attempt_id AND a.claimed_at > s.cancelled_at)
        )
    )
ORDER BY t.id
LIMIT %(batch)s::int
