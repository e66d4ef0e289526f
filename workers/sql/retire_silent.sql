-- Workers that stayed away too long leave for good. One whose lost task nobody else has taken yet keeps its
-- identity: its late result is still welcome. The lease row first and the runner second, as everywhere.
-- Relies on: runner_leases_pkey; reads the leases of all workers once a minute. Called by: workers.periodic.
WITH silent AS MATERIALIZED (
    SELECT l.runner_id
    FROM runner_leases l
    JOIN runners r ON r.id = l.runner_id
    WHERE l.expires_at < clock_timestamp() - make_interval(secs => %(inactive_s)s::float8)
        AND r.kind = 1
        AND r.revoked_at IS NULL
        AND NOT EXISTS (SELECT FROM active_tasks t WHERE t.runner_id = r.id)
    ORDER BY l.runner_id
    LIMIT %(max_workers)s::int
    FOR UPDATE OF l SKIP LOCKED
),
awaited AS (
    SELECT DISTINCT t.lost_runner_id AS runner_id
    FROM active_tasks t
    WHERE t.lost_runner_id IS NOT NULL AND EXISTS (SELECT FROM silent)
)
UPDATE runners r
SET revoked_at = clock_timestamp(),
    token_generation = r.token_generation + 1,
    session_epoch = r.session_epoch + 1,
    conn_state = 2,
    updated_at = clock_timestamp()
FROM silent s
WHERE r.id = s.runner_id AND NOT EXISTS (SELECT FROM awaited a WHERE a.runner_id = r.id)
RETURNING r.id, r.uuid, r.kind
