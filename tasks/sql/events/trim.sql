-- One slice of the log after the cursor (xid, id): what is older than `keep_s` goes, unless its task is active or ended
-- within that time, so that the story of a task is kept whole or not at all. Answers how much went and where to go on;
-- `is_end` when the rest is young. Relies on: task_events_pkey, active_tasks_pkey, archived_tasks_pkey.
-- Called by: tasks.services.retention.
WITH stretch AS MATERIALIZED (
    SELECT e.ctid AS place, e.xid, e.id, e.task_id, e.at < clock_timestamp() - make_interval(secs => %(keep_s)s::float8) AS is_old
    FROM task_events e
    WHERE (e.xid, e.id) > (%(xid)s::text::xid8, %(id)s::bigint)
    ORDER BY e.xid, e.id
    LIMIT %(max_events)s::int
),
subject AS MATERIALIZED (
    SELECT DISTINCT s.task_id FROM stretch s WHERE s.is_old AND s.task_id IS NOT NULL
),
over AS MATERIALIZED (
    SELECT s.task_id
    FROM subject s
    WHERE (SELECT count(*) FROM active_tasks t WHERE t.id = s.task_id) = 0
        AND (
            SELECT count(*)
            FROM archived_tasks t
            WHERE t.id = s.task_id
                AND t.ended_at >= clock_timestamp() - make_interval(secs => %(keep_s)s::float8)
        ) = 0
),
gone AS (
    -- By place: a join would be planned for a slice of unknown size and read the whole log. Events never move.
    DELETE FROM task_events e
    WHERE e.ctid = ANY (ARRAY(
        SELECT s.place
        FROM stretch s
        WHERE s.is_old AND (s.task_id IS NULL OR s.task_id IN (SELECT o.task_id FROM over o))
    ))
    RETURNING e.id
)
SELECT (SELECT count(*) FROM gone)::int AS trimmed, last.xid::text, last.id, NOT last.is_old AS is_end
FROM (SELECT s.* FROM stretch s ORDER BY s.xid DESC, s.id DESC LIMIT 1) last
