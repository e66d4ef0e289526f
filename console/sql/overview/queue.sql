-- How much runs, waits and failed in the groups (null: in all). Counts end at max_count, so that none of them reads a
-- table whole. Running is everything a runner holds; waiting is what live suites have left plus single tasks that are ready.
-- Relies on: active_tasks_runner, active_tasks_claim, task_suites_live, suite_count_deltas_suite, archived_tasks_failed.
-- Called by: console.selectors.overview.
WITH live AS MATERIALIZED (
    SELECT s.id, s.paused_at, s.blocked_at
    FROM task_suites s
    WHERE s.state IN (0, 1)
        AND (%(group_ids)s::bigint[] IS NULL OR s.group_id = ANY (%(group_ids)s::bigint[]))
),
left_over AS (
    SELECT coalesce(sum(d.pending), 0)::bigint AS pending
    FROM suite_count_deltas d
    WHERE d.suite_id IN (SELECT l.id FROM live l)
),
held AS (
    SELECT count(*) AS all_of_them, count(*) FILTER (WHERE t.suite_id IS NOT NULL) AS of_suites
    FROM active_tasks t
    WHERE t.runner_id IS NOT NULL
        AND (%(group_ids)s::bigint[] IS NULL OR t.group_id = ANY (%(group_ids)s::bigint[]))
),
single AS (
    SELECT count(*) AS ready
    FROM (
        SELECT 1
        FROM active_tasks t
        WHERE t.is_ready AND t.queue_id > 0
            AND (%(group_ids)s::bigint[] IS NULL OR t.group_id = ANY (%(group_ids)s::bigint[]))
        LIMIT %(max_count)s
    ) x
),
failed AS (
    SELECT count(*) AS lately
    FROM (
        SELECT 1
        FROM archived_tasks t
        WHERE t.outcome IN (1, 2, 3, 5) AND t.ended_at >= %(failed_since)s
            AND (%(group_ids)s::bigint[] IS NULL OR t.group_id = ANY (%(group_ids)s::bigint[]))
        LIMIT %(max_count)s
    ) x
)
SELECT h.all_of_them, greatest(o.pending - h.of_suites, 0) + s.ready, f.lately,
    (SELECT count(*) FROM live),
    (SELECT count(*) FROM live l WHERE l.paused_at IS NOT NULL),
    (SELECT count(*) FROM live l WHERE l.blocked_at IS NOT NULL)
FROM left_over o, held h, single s, failed f
