-- The newest failures of some groups before the cursor (ended_at, id): each group gives at most what is asked for, straight
-- from the index. Relies on: archived_tasks_failed_group.
-- Called by: console.selectors.failures.
SELECT t.*
FROM unnest(%(group_ids)s::bigint[]) AS g (id)
CROSS JOIN LATERAL (
    SELECT t.id, t.uuid, t.ended_at, t.outcome, t.exit_status, t.msg, left(t.reason, 200) AS reason, t.runner_id, t.suite_id, t.group_id
    FROM archived_tasks t
    WHERE t.group_id = g.id AND t.outcome IN (1, 2, 3, 5)
        AND t.ended_at >= %(since)s AND (t.ended_at, t.id) < (%(before_at)s, %(before_id)s)
    ORDER BY t.ended_at DESC, t.id DESC
    LIMIT %(max_rows)s
) t
ORDER BY t.ended_at DESC, t.id DESC
LIMIT %(max_rows)s
