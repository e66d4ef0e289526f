-- How many runners that hold tasks have a lease that ended just now, and how many leases run: two rows. A fleet that
-- expires at once points at us, not at the fleet; what has been gone for `patience_s` counts for neither.
-- Revoked runners do not count. Relies on: runner_leases_pkey, active_tasks_runner. Called by: tasks.services.reclaim.
WITH leases AS (
    SELECT clock_timestamp() - l.expires_at AS ended_for,
        (SELECT t.id FROM active_tasks t WHERE t.runner_id = l.runner_id LIMIT 1) IS NOT NULL AS is_holding
    FROM runner_leases l
    JOIN runners r ON r.id = l.runner_id
    WHERE r.revoked_at IS NULL
)
SELECT count(*) FILTER (
    WHERE l.is_holding
        AND l.ended_for > make_interval(secs => %(grace_s)s::float8)
        AND l.ended_for <= make_interval(secs => %(grace_s)s::float8 + %(patience_s)s::float8)
)::int
FROM leases l
UNION ALL
SELECT count(*) FILTER (WHERE l.ended_for <= make_interval(secs => %(grace_s)s::float8))::int FROM leases l
