-- Who is alive, for the console and for people with psql. A lease that is over makes a worker stale; one that left, was
-- shut down or stayed away too long is inactive. Counts by active_tasks_runner, so 10,000 workers are 10,000 probes.
CREATE VIEW worker_status AS
SELECT
    r.id AS runner_id,
    r.uuid AS worker_id,
    CASE
        WHEN r.revoked_at IS NOT NULL THEN 'inactive'
        WHEN l.expires_at > clock_timestamp() THEN 'active'
        ELSE 'stale'
    END AS status,
    s.last_seen_at,
    (SELECT count(*) FROM active_tasks t WHERE t.runner_id = r.id) AS active_tasks,
    floor(extract(epoch FROM clock_timestamp() - s.last_seen_at) / 60)::int AS minutes_since_heartbeat
FROM workers w
JOIN runners r ON r.id = w.runner_id
JOIN runner_leases l ON l.runner_id = w.runner_id
CROSS JOIN LATERAL (SELECT l.expires_at - make_interval(secs => w.lease_ttl_s) AS last_seen_at) s;
