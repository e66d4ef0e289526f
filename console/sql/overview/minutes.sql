-- Tasks that ended per minute in the groups (null: all), from `since` on. Rows are written in the order of their end, so the
-- few bytes of a BRIN index find the pages. Relies on: archived_tasks_ended. Called by: console.selectors.throughput.
SELECT date_bin('1 minute'::interval, t.ended_at, 'epoch'::timestamptz) AS minute, count(*),
    count(*) FILTER (WHERE t.outcome IN (1, 2, 3, 5))
FROM archived_tasks t
WHERE t.ended_at >= %(since)s
    AND (%(group_ids)s::bigint[] IS NULL OR t.group_id = ANY (%(group_ids)s::bigint[]))
GROUP BY 1
ORDER BY 1
