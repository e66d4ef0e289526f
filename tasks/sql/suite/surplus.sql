-- The tail rule: what to say where some managers of a suite want tasks and get none while others hold more than their
-- workers can run. Given are managers whose last fetch was empty. A row `hungry` for each of them that has workers free
-- and may hope for tasks (`number` 1: something it could take waits), a row `holder` for each manager that should give
-- back: `number` is how many attempts it keeps, `attempt_ids` are those that the hungry could run, newest first.
-- Largest surplus first, and no more than the hungry have room for. Changes nothing.
-- Relies on: suite_assignments_one_live, suite_assignments_live_suite, active_tasks_runner, active_tasks_suite,
-- active_tasks_claim. Called by: tasks.services.suite_surplus.
WITH RECURSIVE
hungry AS MATERIALIZED (
    SELECT s.id AS suite_id, s.uuid AS suite_uuid, w.workers, r.id AS runner_id, r.uuid, r.tags, w.workers - n.held AS room
    FROM unnest(%(runner_ids)s::bigint[]) AS q (runner_id)
    JOIN runners r ON r.id = q.runner_id AND r.revoked_at IS NULL AND r.desired_state = 0 AND r.conn_state = 1
    JOIN suite_assignments a ON a.manager_id = r.id AND a.released_at IS NULL AND a.state IN (2, 3)
    JOIN task_suites s ON s.id = a.suite_id AND s.state IN (0, 1) AND s.paused_at IS NULL AND s.blocked_at IS NULL
    CROSS JOIN LATERAL (SELECT (s.worker_schedule ->> 'worker_count')::int AS workers) w
    CROSS JOIN LATERAL (SELECT count(*) AS held FROM active_tasks t WHERE t.runner_id = r.id) n
    WHERE n.held < w.workers AND EXISTS (SELECT FROM active_tasks t WHERE t.suite_id = s.id)
),
suite AS MATERIALIZED (
    SELECT h.suite_id, h.suite_uuid, h.workers, sum(h.room) AS room
    FROM hungry h
    GROUP BY h.suite_id, h.suite_uuid, h.workers
),
-- What waits, from lane to lane: managers told of it fetch by themselves.
lane AS (
    SELECT s.suite_id, f.lane, f.tags, 1 AS nth
    FROM suite s
    CROSS JOIN LATERAL (
        SELECT t.lane, t.tags FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = -s.suite_id
        ORDER BY t.lane LIMIT 1
    ) f
    UNION ALL
    SELECT p.suite_id, n.lane, n.tags, p.nth + 1
    FROM lane p
    CROSS JOIN LATERAL (
        SELECT t.lane, t.tags FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = -p.suite_id AND t.lane > p.lane
        ORDER BY t.lane LIMIT 1
    ) n
    WHERE p.nth < 64
),
waiting AS MATERIALIZED (
    SELECT l.suite_id, l.tags
    FROM lane l
    WHERE EXISTS (
        SELECT FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = -l.suite_id AND t.lane = l.lane
            AND t.cancel_requested_at IS NULL AND t.not_before <= clock_timestamp()
    )
),
holder AS MATERIALIZED (
    SELECT s.suite_id, s.suite_uuid, s.room, r.id AS runner_id, r.uuid, n.held, n.attempt_ids,
        least(n.movable, n.held - s.workers) AS surplus
    FROM suite s
    JOIN suite_assignments a ON a.suite_id = s.suite_id AND a.released_at IS NULL AND a.state IN (2, 3)
    JOIN runners r ON r.id = a.manager_id AND r.conn_state = 1
    CROSS JOIN LATERAL (
        SELECT count(*) AS held, count(*) FILTER (WHERE f.is_movable) AS movable,
            array_agg(t.attempt_id ORDER BY t.attempt_id DESC) FILTER (WHERE f.is_movable) AS attempt_ids
        FROM active_tasks t
        CROSS JOIN LATERAL (
            SELECT t.state = 2 AND t.suite_id = s.suite_id AND t.cancel_requested_at IS NULL AND t.pinned_runner_id IS NULL
                AND EXISTS (
                    SELECT FROM hungry h
                    WHERE h.suite_id = s.suite_id AND t.tags <@ h.tags
                        AND NOT t.excluded_runner_ids @> ARRAY[h.runner_id]
                ) AS is_movable
        ) f
        WHERE t.runner_id = r.id
    ) n
    WHERE n.held > s.workers AND n.movable > 0
),
asked AS (
    SELECT o.*, least(o.surplus, greatest(0, o.room - coalesce(sum(o.surplus) OVER before, 0)))::int AS gives
    FROM holder o
    WINDOW before AS (
        PARTITION BY o.suite_id ORDER BY o.surplus DESC, o.runner_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)
SELECT 'hungry' AS kind, h.runner_id, h.uuid, h.suite_uuid,
    EXISTS (SELECT FROM waiting w WHERE w.suite_id = h.suite_id AND w.tags <@ h.tags)::int AS number,
    '{}'::bigint[] AS attempt_ids
FROM hungry h
UNION ALL
SELECT 'holder', a.runner_id, a.uuid, a.suite_uuid, (a.held - a.gives)::int, a.attempt_ids[1:least(a.gives, %(most)s::int)]
FROM asked a
WHERE a.gives > 0
