-- Tasks that a runner holds, of the groups (null: all), a suite or a runner (null: any), newest first before the cursor. There
-- are never more than the fleet can hold. Answers as the other files here. Relies on: active_tasks_runner.
-- Called by: console.selectors.tasks.
WITH stretch AS MATERIALIZED (
    SELECT t.id
    FROM active_tasks t
    WHERE t.runner_id IS NOT NULL AND t.id < %(before)s
        AND (%(runner_id)s::bigint IS NULL OR t.runner_id = %(runner_id)s::bigint)
        AND (%(group_ids)s::bigint[] IS NULL OR t.group_id = ANY (%(group_ids)s::bigint[]))
        AND (%(suite_id)s::bigint IS NULL OR t.suite_id = %(suite_id)s::bigint)
        AND (%(label)s::text IS NULL OR %(label)s::text = ANY (t.labels))
    ORDER BY t.id DESC
    LIMIT %(max_matches)s
)
SELECT ARRAY(SELECT s.id FROM stretch s ORDER BY s.id DESC), (SELECT count(*) FROM stretch), (SELECT min(s.id) FROM stretch s)
