-- The lease of a new runner. Called by runners.services.registration, in the transaction of the insert.
INSERT INTO runner_leases (runner_id, session_epoch, expires_at)
SELECT id, session_epoch, clock_timestamp() + make_interval(secs => %(ttl_s)s)
FROM runners WHERE id = %(runner_id)s
