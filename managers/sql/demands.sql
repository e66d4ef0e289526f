-- Each kind of task that somebody could claim now, for every live suite: its tags, and the managers that gave it up. From
-- lane to lane by skipping, as claims do: a crowd of like tasks costs two index probes; given up tasks are few and have an
-- index of their own. Both bounded: what lies beyond comes into view as those before it are taken. By task_suites_live,
-- active_tasks_claim and active_tasks_excluded; called by managers.services.snapshot.
WITH RECURSIVE lane AS (
    SELECT s.id AS suite_id, f.lane, f.tags, 1 AS nth
    FROM task_suites s
    CROSS JOIN LATERAL (
        SELECT t.lane, t.tags
        FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = -s.id
        ORDER BY t.lane
        LIMIT 1
    ) f
    WHERE s.state IN (0, 1)
    UNION ALL
    SELECT p.suite_id, n.lane, n.tags, p.nth + 1
    FROM lane p
    CROSS JOIN LATERAL (
        SELECT t.lane, t.tags
        FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = -p.suite_id AND t.lane > p.lane
        ORDER BY t.lane
        LIMIT 1
    ) n
    WHERE p.nth < 256
)
SELECT DISTINCT l.suite_id, l.tags, '{}'::bigint[] AS excluded
FROM lane l
WHERE EXISTS (
    SELECT FROM active_tasks t
    WHERE t.is_ready AND t.queue_id = -l.suite_id AND t.lane = l.lane AND t.excluded_runner_ids = '{}'
        AND t.cancel_requested_at IS NULL AND t.not_before <= clock_timestamp()
)
UNION ALL
SELECT DISTINCT given_up.suite_id, given_up.tags, given_up.excluded
FROM (
    SELECT -t.queue_id AS suite_id, t.tags, t.excluded_runner_ids AS excluded
    FROM active_tasks t
    WHERE t.is_ready AND t.excluded_runner_ids <> '{}' AND t.queue_id < 0
        AND t.cancel_requested_at IS NULL AND t.not_before <= clock_timestamp()
    LIMIT 1024
) given_up
JOIN task_suites s ON s.id = given_up.suite_id AND s.state IN (0, 1)
