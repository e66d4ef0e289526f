-- The managers of the groups (null: all) by what they do, and the workers of those that are there. Metrics are what agents
-- sent: only what is a number counts. Relies on: runners_kind_id, node_managers_pkey. Called by: console.selectors.overview.
WITH fleet AS MATERIALIZED (
    SELECT n.state, r.desired_state, n.metrics -> 'active_workers' AS workers,
        n.metrics -> 'families' -> 'worker_pool' -> 'workers_executing' AS executing
    FROM runners r
    JOIN node_managers n ON n.runner_id = r.id
    WHERE r.kind = 0 AND r.revoked_at IS NULL
        AND (
            %(group_ids)s::bigint[] IS NULL
            OR EXISTS (
                SELECT 1
                FROM group_runners g
                WHERE g.runner_id = r.id AND g.consent = 1 AND g.group_id = ANY (%(group_ids)s::bigint[])
            )
        )
)
SELECT count(*), count(*) FILTER (WHERE f.state IN (1, 2, 3)), count(*) FILTER (WHERE f.state = 0),
    count(*) FILTER (WHERE f.state = 4), count(*) FILTER (WHERE f.desired_state = 1),
    count(*) FILTER (WHERE f.desired_state = 2),
    coalesce(sum(CASE WHEN jsonb_typeof(f.workers) = 'number' THEN f.workers::numeric END) FILTER (WHERE f.state <> 4), 0)::float8,
    coalesce(sum(CASE WHEN jsonb_typeof(f.executing) = 'number' THEN f.executing::numeric END) FILTER (WHERE f.state <> 4), 0)::float8
FROM fleet f
