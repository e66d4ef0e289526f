-- Claim, part 2 of 2: hand the best waiting tasks to everybody who asked, one attempt row each.
-- Expects asked and guard from part 1. One row per task handed out; one without a task for a request that
-- got none, whose `verdict` says why.
-- Relies on: active_tasks_claim (order within a lane), active_tasks_runner and task_attempts_claim (repeats),
-- affinity_owners_pkey.
-- Never waits for a task row. A request that others crowded out answers `again`; alone in a batch it is exact.
-- Plans are cached and may be made while the queue is empty. LATERAL with OFFSET 0 or LIMIT, and = ANY (ARRAY(...)) as
-- the only condition of an update, leave no other way than one index probe per row, whatever the planner believed then.

-- A busy worker, or a fetch whose answer was lost, gets what it already holds.
held AS MATERIALIZED (
    SELECT g.ord, t.id
    FROM guard g
    CROSS JOIN LATERAL (SELECT h.id FROM active_tasks h WHERE h.runner_id = g.runner_id OFFSET 0) t
    WHERE g.is_exclusive
    UNION ALL
    SELECT g.ord, t.id
    FROM guard g
    -- By claim id, never by walking all that a busy manager holds.
    CROSS JOIN LATERAL (SELECT a.id, a.task_id FROM task_attempts a WHERE a.claim_id = g.claim_id OFFSET 0) a
    CROSS JOIN LATERAL (
        SELECT h.id, h.attempt_id, h.runner_id FROM active_tasks h WHERE h.id = a.task_id OFFSET 0
    ) t
    WHERE NOT g.is_exclusive AND t.attempt_id = a.id AND t.runner_id = g.runner_id
),
-- The same worker or the same claim twice in one batch: the first one counts, the other goes again.
hungry AS MATERIALIZED (
    SELECT n.*
    FROM (
        SELECT g.*,
            row_number() OVER (
                PARTITION BY g.is_exclusive, CASE WHEN g.is_exclusive THEN g.runner_id::text ELSE g.claim_id::text END
                ORDER BY g.ord
            ) AS repetition
        FROM guard g
        WHERE g.want > 0 AND NOT EXISTS (SELECT FROM held h WHERE h.ord = g.ord)
    ) n
    WHERE n.repetition = 1
),
-- The lanes that hold something, by skipping from one to the next: a crowd costs one index probe.
lane AS (
    SELECT q.queue_id, f.lane, f.tags, f.pinned_runner_id
    FROM (SELECT DISTINCT unnest(h.queue_ids) AS queue_id FROM hungry h) q
    CROSS JOIN LATERAL (
        SELECT t.lane, t.tags, t.pinned_runner_id
        FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = q.queue_id
        ORDER BY t.lane
        LIMIT 1
    ) f
    UNION ALL
    SELECT p.queue_id, n.lane, n.tags, n.pinned_runner_id
    FROM lane p
    CROSS JOIN LATERAL (
        SELECT t.lane, t.tags, t.pinned_runner_id
        FROM active_tasks t
        WHERE t.is_ready AND t.queue_id = p.queue_id AND t.lane > p.lane
        ORDER BY t.lane
        LIMIT 1
    ) n
),
lanes AS MATERIALIZED (SELECT l.*, (row_number() OVER ())::int AS no FROM lane l),
-- Requests that may take from exactly the same lanes form a class and are served by rank.
menu AS MATERIALIZED (
    SELECT h.ord, h.runner_id, h.session_epoch, h.assignment_id, h.claim_id, h.is_exclusive, h.want,
        ARRAY(
            SELECT l.no
            FROM lanes l
            WHERE l.queue_id = ANY (h.queue_ids)
                AND l.tags <@ h.tags
                -- A direct worker without commands takes what names one of its node types.
                AND (h.node_tags IS NULL OR h.node_tags @> ARRAY['node:command'] OR l.tags && h.node_tags)
                AND (l.pinned_runner_id IS NULL OR l.pinned_runner_id = h.runner_id)
            ORDER BY l.no
        ) AS lane_nos
    FROM hungry h
),
class AS MATERIALIZED (
    SELECT m.lane_nos, min(m.ord) AS class_ord, sum(m.want) AS want, array_agg(m.runner_id) AS runner_ids
    FROM menu m
    WHERE m.lane_nos <> '{}'
    GROUP BY m.lane_nos
),
-- Two classes that share a lane would pick the same rows: the later one goes again.
served AS MATERIALIZED (
    SELECT c.*
    FROM class c
    WHERE NOT EXISTS (
        SELECT FROM class e WHERE e.class_ord < c.class_ord AND e.lane_nos && c.lane_nos
    )
),
picked AS MATERIALIZED (
    SELECT c.class_ord, p.id, p.priority, p.concurrency_key, p.affinity_key, p.owner_id, p.excluded_runner_ids
    FROM served c
    CROSS JOIN LATERAL unnest(c.lane_nos) AS u (no)
    JOIN lanes l ON l.no = u.no
    CROSS JOIN LATERAL (
        SELECT t.id, t.priority, t.concurrency_key, t.excluded_runner_ids, t.affinity ->> 'key' AS affinity_key, w.owner_id
        FROM active_tasks t
        -- Who its affinity binds it to: the owner of the key while it works, for a preferred one only for a while.
        LEFT JOIN LATERAL (
            SELECT o.runner_id AS owner_id
            FROM affinity_owners o
            JOIN runner_leases ol ON ol.runner_id = o.runner_id AND ol.expires_at > clock_timestamp()
            JOIN runners n ON n.id = o.runner_id AND n.desired_state = 0 AND n.revoked_at IS NULL
            WHERE t.affinity IS NOT NULL
                AND o.group_id = t.group_id
                AND o.key = t.affinity ->> 'key'
                AND (
                    coalesce(t.affinity ->> 'mode', 'sticky') = 'sticky'
                    OR t.not_before > clock_timestamp()
                        - make_interval(secs => coalesce((t.affinity ->> 'wait_s')::float8, 5))
                )
            OFFSET 0
        ) w ON true
        WHERE t.is_ready
            AND t.queue_id = l.queue_id
            AND t.lane = l.lane
            AND t.cancel_requested_at IS NULL
            AND t.not_before <= clock_timestamp()
            AND t.failures < t.max_failures
            AND t.attempt < t.max_attempts
            AND NOT t.excluded_runner_ids @> c.runner_ids
            -- The unique index has the last word; the lock only spares us its error.
            AND (
                t.concurrency_key IS NULL
                OR (
                    NOT EXISTS (
                        SELECT FROM active_tasks k
                        WHERE k.group_id = t.group_id
                            AND k.concurrency_key = t.concurrency_key
                            AND k.runner_id IS NOT NULL
                    )
                    AND pg_try_advisory_xact_lock(
                        hashtextextended(t.group_id || '/' || t.concurrency_key, 1)
                    )
                )
            )
            -- Two statements must not give one new key to two runners.
            AND (
                t.affinity IS NULL
                OR (
                    (w.owner_id IS NULL OR w.owner_id = ANY (c.runner_ids))
                    AND pg_try_advisory_xact_lock(
                        hashtextextended(t.group_id || '/' || (t.affinity ->> 'key'), 2)
                    )
                )
            )
        ORDER BY t.priority DESC, t.id
        LIMIT c.want
        FOR UPDATE OF t SKIP LOCKED
    ) p
),
ranked AS MATERIALIZED (
    SELECT p.class_ord, p.id, p.excluded_runner_ids, p.owner_id,
        row_number() OVER (PARTITION BY p.class_ord ORDER BY p.priority DESC, p.id) AS rank
    FROM (
        SELECT o.*, row_number() OVER (PARTITION BY o.concurrency_key ORDER BY o.priority DESC, o.id) AS nth,
            row_number() OVER (PARTITION BY o.affinity_key ORDER BY o.priority DESC, o.id) AS nth_near
        FROM picked o
    ) p
    -- One of each key in a batch: the next one sees whom the first went to.
    WHERE (p.concurrency_key IS NULL OR p.nth = 1)
        AND (p.affinity_key IS NULL OR p.owner_id IS NOT NULL OR p.nth_near = 1)
),
-- One row per class, its seats as lists: a join by rank would compare every task with every seat.
seats AS MATERIALIZED (
    SELECT c.class_ord,
        array_agg(m.ord ORDER BY m.ord) AS ords,
        array_agg(m.runner_id ORDER BY m.ord) AS runner_ids,
        array_agg(m.session_epoch ORDER BY m.ord) AS session_epochs,
        array_agg(m.assignment_id ORDER BY m.ord) AS assignment_ids,
        array_agg(m.claim_id ORDER BY m.ord) AS claim_ids,
        array_agg(m.is_exclusive ORDER BY m.ord) AS exclusive
    FROM served c
    JOIN menu m ON m.lane_nos = c.lane_nos
    CROSS JOIN LATERAL generate_series(1, m.want)
    GROUP BY c.class_ord
),
granted AS MATERIALIZED (
    SELECT n.*
    FROM (
        SELECT s.ords[r.rank] AS ord, s.runner_ids[r.rank] AS runner_id, s.session_epochs[r.rank] AS session_epoch,
            s.assignment_ids[r.rank] AS assignment_id, s.claim_ids[r.rank] AS claim_id,
            s.exclusive[r.rank] AS is_exclusive, r.id, r.excluded_runner_ids, r.owner_id
        FROM ranked r
        JOIN seats s ON s.class_ord = r.class_ord
        WHERE r.rank <= cardinality(s.ords)
        OFFSET 0
    ) n
    WHERE NOT n.excluded_runner_ids @> ARRAY[n.runner_id] AND coalesce(n.owner_id, n.runner_id) = n.runner_id
),
-- The same by task, in the order of ids: the update finds its values by halving, not by reading all for each row.
handout AS MATERIALIZED (
    SELECT array_agg(g.id ORDER BY g.id) AS ids,
        array_agg(g.runner_id ORDER BY g.id) AS runner_ids,
        array_agg(g.is_exclusive ORDER BY g.id) AS exclusive,
        array_agg(g.assignment_id ORDER BY g.id) AS assignment_ids
    FROM granted g
),
taken AS (
    UPDATE active_tasks t
    SET state = 2,
        attempt = t.attempt + 1,
        attempt_id = nextval('task_attempts_id_seq'),
        (runner_id, is_exclusive, assignment_id, started_at) = (
            -- A worker of the existing wire sends no Start: its command may run from now on.
            SELECT h.runner_ids[n.at], h.exclusive[n.at], h.assignment_ids[n.at],
                CASE WHEN h.exclusive[n.at] THEN clock_timestamp() END
            FROM handout h
            CROSS JOIN LATERAL (SELECT width_bucket(t.id, h.ids) AS at OFFSET 0) n
        ),
        lost_runner_id = NULL,
        lost_charge = 0,
        last_op_id = NULL,
        finish_cancelled = false,
        event_seq = t.event_seq + 1,
        updated_at = clock_timestamp()
    WHERE t.id = ANY (ARRAY(SELECT g.id FROM granted g))
    RETURNING t.id, t.attempt_id, t.uuid, t.attempt, t.group_id, t.suite_id, t.assignment_id, t.runner_id, t.timeout_s,
        t.spec, t.upstream_task_uuid, t.limits, t.middleware, t.priority, t.max_failures, t.event_seq, t.concurrency_key,
        t.affinity, t.resource_refs
),
claimed AS MATERIALIZED (
    SELECT g.ord, g.claim_id, g.session_epoch, t.* FROM taken t JOIN granted g ON g.id = t.id
),
attempts AS (
    INSERT INTO task_attempts (id, task_id, attempt, runner_id, session_epoch, assignment_id, claim_id)
    SELECT c.attempt_id, c.id, c.attempt, c.runner_id, c.session_epoch, c.assignment_id, c.claim_id
    FROM claimed c
),
bound AS (
    INSERT INTO affinity_owners (group_id, key, runner_id, used_at)
    SELECT DISTINCT ON (c.group_id, c.affinity ->> 'key')
        c.group_id, c.affinity ->> 'key', c.runner_id, clock_timestamp()
    FROM claimed c
    WHERE c.affinity ->> 'key' IS NOT NULL
    ON CONFLICT (group_id, key) DO UPDATE SET runner_id = excluded.runner_id, used_at = excluded.used_at
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id, runner_id)
    SELECT 2, 2, c.event_seq, c.attempt, c.group_id, c.suite_id, c.id, c.runner_id
    FROM claimed c
),
handed AS (
    SELECT c.ord, c.id, c.attempt_id, c.uuid, c.attempt, c.group_id, c.suite_id, c.timeout_s, c.spec,
        c.upstream_task_uuid, c.limits, c.middleware, c.priority, c.max_failures, false AS is_repeat,
        c.concurrency_key, c.affinity, c.resource_refs
    FROM claimed c
    UNION ALL
    SELECT h.ord, t.id, t.attempt_id, t.uuid, t.attempt, t.group_id, t.suite_id, t.timeout_s, t.spec,
        t.upstream_task_uuid, t.limits, t.middleware, t.priority, t.max_failures, true,
        t.concurrency_key, t.affinity, t.resource_refs
    FROM held h
    CROSS JOIN LATERAL (SELECT a.* FROM active_tasks a WHERE a.id = h.id OFFSET 0) t
)
SELECT h.ord::int, 'task' AS verdict, h.attempt_id, h.id AS task_id, h.uuid, h.attempt, h.group_id, h.suite_id,
    h.timeout_s, h.spec::text, h.upstream_task_uuid, h.limits::text, h.middleware::text, h.priority, h.max_failures,
    h.is_repeat, h.concurrency_key, h.affinity::text, h.resource_refs::text
FROM handed h
UNION ALL
SELECT q.ord::int,
    CASE
        WHEN r.id IS NULL OR r.revoked_at IS NOT NULL THEN 'revoked'
        WHEN r.session_epoch <> q.session_epoch THEN 'superseded'
        WHEN r.desired_state <> 0 THEN 'inactive'
        WHEN l.expires_at IS NULL OR l.expires_at <= clock_timestamp() THEN 'lease_lost'
        -- The runner's row was locked, or the same request stands in this batch twice.
        WHEN m.ord IS NULL THEN CASE WHEN q.want > 0 THEN 'again' ELSE 'nothing' END
        WHEN m.lane_nos = '{}' THEN 'nothing'
        WHEN NOT EXISTS (SELECT FROM served s WHERE s.lane_nos = m.lane_nos) THEN 'again'
        -- Everything it could take was locked by others, or went to others of its class.
        WHEN EXISTS (
            SELECT
            FROM lanes n
            CROSS JOIN LATERAL (
                SELECT t.id
                FROM active_tasks t
                WHERE t.is_ready
                    AND t.queue_id = n.queue_id
                    AND t.lane = n.lane
                    AND t.not_before <= clock_timestamp()
                    AND t.concurrency_key IS NULL
                    AND (
                        t.affinity IS NULL
                        OR NOT EXISTS (
                            SELECT FROM affinity_owners o
                            WHERE o.group_id = t.group_id AND o.key = t.affinity ->> 'key' AND o.runner_id <> q.runner_id
                        )
                    )
                    AND NOT t.excluded_runner_ids @> ARRAY[q.runner_id]
                ORDER BY t.priority DESC, t.id
                LIMIT 1 + (SELECT count(*) FROM granted)
            ) more
            WHERE n.no = ANY (m.lane_nos) AND NOT EXISTS (SELECT FROM granted g WHERE g.id = more.id)
        ) THEN 'again'
        ELSE 'nothing'
    END, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM asked q
LEFT JOIN menu m ON m.ord = q.ord
LEFT JOIN runners r ON r.id = q.runner_id
LEFT JOIN runner_leases l ON l.runner_id = q.runner_id
-- A hash of few numbers; as an anti-join it may become a comparison of everything with everything.
WHERE q.ord NOT IN (SELECT h.ord FROM handed h)
ORDER BY ord, priority DESC, task_id
