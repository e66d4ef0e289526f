-- A beat of a worker on HTTP: renews its lease, and takes a worker that was given up for lost back into the living.
-- No row: it was revoked. The lease row first and the runner second, as the reaper locks them.
-- Relies on: runner_leases_pkey, runners_pkey, workers_pkey. Called by: workers.services.heartbeat.
WITH beat AS (
    UPDATE runner_leases l
    SET expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s::float8), session_epoch = r.session_epoch
    FROM runners r
    WHERE l.runner_id = %(runner_id)s AND r.id = l.runner_id AND r.revoked_at IS NULL
    RETURNING l.runner_id, l.expires_at
),
returned AS (
    UPDATE runners r
    SET conn_state = 1, updated_at = clock_timestamp()
    FROM beat b
    WHERE r.id = b.runner_id AND r.conn_state <> 1
    RETURNING r.id
),
described AS (
    UPDATE workers w
    SET lease_ttl_s = %(ttl_s)s::float8,
        metadata = coalesce(%(metadata)s::jsonb, w.metadata),
        metadata_at = CASE WHEN %(metadata)s::jsonb IS NULL THEN w.metadata_at ELSE clock_timestamp() END
    FROM beat b
    WHERE w.runner_id = b.runner_id AND (w.lease_ttl_s <> %(ttl_s)s::float8 OR %(metadata)s::jsonb IS NOT NULL)
)
-- conn_state as it was before: 2 is what the reaper leaves behind.
SELECT b.expires_at, EXISTS (SELECT FROM returned) AND r.conn_state = 2 AS was_lost
FROM beat b
JOIN runners r ON r.id = b.runner_id
