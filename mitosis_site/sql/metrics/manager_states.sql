-- Managers that were not revoked by state and wish, with sockets, engagements and the workers of those not offline.
-- By node_managers_pkey, suite_assignments_one_live; called by: mitosis_site.metrics.managers.
SELECT m.state, r.desired_state, count(*)::bigint,
    (count(*) FILTER (WHERE r.conn_state = 1))::bigint,
    (count(*) FILTER (
        WHERE EXISTS (SELECT FROM suite_assignments a WHERE a.manager_id = m.runner_id AND a.released_at IS NULL)
    ))::bigint,
    coalesce(sum(w.active) FILTER (WHERE m.state <> 4), 0)::float8,
    coalesce(sum(w.executing) FILTER (WHERE m.state <> 4), 0)::float8
FROM node_managers m
JOIN runners r ON r.id = m.runner_id AND r.revoked_at IS NULL
CROSS JOIN LATERAL (
    -- What a manager sends is its own word: only numbers are added up.
    SELECT CASE WHEN jsonb_typeof(f.pool -> 'workers_active') = 'number'
            THEN (f.pool ->> 'workers_active')::numeric END AS active,
        CASE WHEN jsonb_typeof(f.pool -> 'workers_executing') = 'number'
            THEN (f.pool ->> 'workers_executing')::numeric END AS executing
    FROM (SELECT m.metrics #> '{families,worker_pool}' AS pool) f
) w
GROUP BY m.state, r.desired_state
