-- Independent workers whose last beat no longer counts are marked lost; their next beat takes them back. What they hold
-- is the reaper's, which fences them. By fact, so it may run twice. The lease row first and the runner second, as everywhere.
-- Relies on: runner_leases_pkey; reads the leases of all workers once a minute. Called by: workers.services.staleness.
WITH silent AS MATERIALIZED (
    SELECT l.runner_id
    FROM runner_leases l
    JOIN runners r ON r.id = l.runner_id
    WHERE l.expires_at < clock_timestamp() - make_interval(secs => %(grace_s)s::float8)
        AND r.kind = 1
        AND r.conn_state <> 2
        AND r.revoked_at IS NULL
    ORDER BY l.runner_id
    LIMIT %(max_workers)s::int
    FOR UPDATE OF l SKIP LOCKED
)
UPDATE runners r
SET conn_state = 2, updated_at = clock_timestamp()
FROM silent s
WHERE r.id = s.runner_id AND r.conn_state <> 2
RETURNING r.uuid
