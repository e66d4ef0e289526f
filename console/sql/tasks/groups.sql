-- A stretch of the newest tasks before the cursor, active and archived, of some groups: each
-- gives at most what is asked for, straight from its index.
-- Relies on: active_tasks_group, archived_tasks_group; asked for as a range, so that for a group without tasks the planner does
-- not walk the primary key through everybody else's.
-- Answers the ids that match (newest first), how many rows were looked at and the oldest of them: a filter that few rows
-- pass reads a bounded stretch, and the reader goes on from its end. `places` are phases, and outcomes from 100 on.
-- Called by: console.selectors.tasks.
WITH active AS MATERIALIZED (
    SELECT x.*
    FROM unnest(%(group_ids)s::bigint[]) AS g (id)
    CROSS JOIN LATERAL (
        SELECT t.id, t.state::int AS place, t.labels, t.runner_id
        FROM active_tasks t
        WHERE t.group_id >= g.id AND (t.group_id, t.id) < (g.id, %(before)s)
        ORDER BY t.group_id DESC, t.id DESC
        LIMIT %(max_active)s
    ) x
    ORDER BY x.id DESC
    LIMIT %(max_active)s
),
archived AS MATERIALIZED (
    SELECT x.*
    FROM unnest(%(group_ids)s::bigint[]) AS g (id)
    CROSS JOIN LATERAL (
        SELECT t.id, 100 + t.outcome AS place, t.labels, t.runner_id
        FROM archived_tasks t
        WHERE t.group_id >= g.id AND (t.group_id, t.id) < (g.id, %(before)s)
        ORDER BY t.group_id DESC, t.id DESC
        LIMIT %(max_archived)s
    ) x
    ORDER BY x.id DESC
    LIMIT %(max_archived)s
),
stretch AS MATERIALIZED (
    SELECT a.* FROM active a
    UNION ALL
    SELECT b.* FROM archived b
    ORDER BY id DESC
    LIMIT %(max_rows)s
)
SELECT ARRAY(
        SELECT s.id
        FROM stretch s
        WHERE (%(places)s::int[] IS NULL OR s.place = ANY (%(places)s::int[]))
            AND (%(label)s::text IS NULL OR %(label)s::text = ANY (s.labels))
            AND (%(runner_id)s::bigint IS NULL OR s.runner_id = %(runner_id)s::bigint)
        ORDER BY s.id DESC
        LIMIT %(max_matches)s
    ),
    (SELECT count(*) FROM stretch), (SELECT min(s.id) FROM stretch s)
