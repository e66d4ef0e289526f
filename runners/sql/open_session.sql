-- A runner connects: the newest connection wins, its epoch fences all older ones. Activity and desired
-- state are not touched. By the unique index on uuid; called by runners.services.sessions.
WITH opened AS (
    UPDATE runners
    SET session_epoch = session_epoch + 1, conn_state = 1, process_id = %(process_id)s,
        updated_at = clock_timestamp()
    WHERE id = %(runner_id)s AND token_generation = %(generation)s AND revoked_at IS NULL
    RETURNING id, session_epoch
)
INSERT INTO runner_leases (runner_id, session_epoch, expires_at)
SELECT id, session_epoch, clock_timestamp() + make_interval(secs => %(ttl_s)s) FROM opened
ON CONFLICT (runner_id) DO UPDATE
SET session_epoch = EXCLUDED.session_epoch, expires_at = EXCLUDED.expires_at
RETURNING session_epoch, expires_at
