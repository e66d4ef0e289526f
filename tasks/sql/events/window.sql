-- The next stretch of the whole log after the cursor, as in of_suite.sql, with foreign groups' rows left out but
-- stepped over: the last row is always returned (as a bare position when it is not the reader's), so a reader of a
-- small group moves on in bounded steps. Relies on: task_events_pkey. Called by: tasks.store.events_window.
WITH stretch AS (
    SELECT e.*
    FROM task_events e
    WHERE (e.xid, e.id) > (%(xid)s::text::xid8, %(id)s::bigint)
        AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY e.xid, e.id
    LIMIT %(max_events)s::int
),
numbered AS (
    SELECT s.*, s.group_id = ANY (%(group_ids)s::bigint[]) AS is_visible,
        row_number() OVER (ORDER BY s.xid DESC, s.id DESC) = 1 AS is_last
    FROM stretch s
)
SELECT n.id, n.xid::text AS xid, n.at, n.kind,
    CASE WHEN n.is_visible THEN n.state END AS state, CASE WHEN n.is_visible THEN n.outcome END AS outcome,
    CASE WHEN n.is_visible THEN n.seq END AS seq, CASE WHEN n.is_visible THEN n.attempt END AS attempt,
    CASE WHEN n.is_visible THEN n.group_id END AS group_id, CASE WHEN n.is_visible THEN n.suite_id END AS suite_id,
    CASE WHEN n.is_visible THEN n.task_id END AS task_id, CASE WHEN n.is_visible THEN n.runner_id END AS runner_id,
    CASE WHEN n.is_visible THEN n.data::text END AS data
FROM numbered n
WHERE n.is_visible OR n.is_last
ORDER BY n.xid, n.id
