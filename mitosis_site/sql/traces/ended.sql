-- The next stretch of the log after the cursor, up to the oldest running transaction: only its last position and the
-- tasks that ended in it. By task_events_pkey; called by: mitosis_site.tracing.export.
WITH stretch AS (
    SELECT e.xid, e.id, e.kind, e.task_id
    FROM task_events e
    WHERE (e.xid, e.id) > (%(xid)s::text::xid8, %(id)s::bigint)
        AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY e.xid, e.id
    LIMIT %(max_events)s::int
)
SELECT last.xid::text, last.id,
    ARRAY(SELECT s.task_id FROM stretch s WHERE s.kind = 8 AND s.task_id IS NOT NULL ORDER BY s.xid, s.id)
FROM (SELECT s.xid, s.id FROM stretch s ORDER BY s.xid DESC, s.id DESC LIMIT 1) last
