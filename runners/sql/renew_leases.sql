-- Heartbeats of many runners in one statement; a lease of an older session is not renewed. The rows were locked in the
-- statement before (lock_leases.sql). By the primary key; called by runners.services.sessions.
UPDATE runner_leases l
SET expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s)
FROM unnest(%(runner_ids)s::bigint[], %(session_epochs)s::bigint[]) AS b (runner_id, session_epoch)
WHERE l.runner_id = b.runner_id AND l.session_epoch = b.session_epoch
RETURNING l.runner_id, l.expires_at
