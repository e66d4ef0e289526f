-- How many managers would expire now, and how many are alive; long gone ones count for neither.
-- By node_managers_pkey; called by managers.services.expiry.
SELECT
    count(*) FILTER (
        WHERE m.state <> 4 AND l.expires_at < clock_timestamp() - make_interval(secs => %(grace_s)s)
    )::int,
    count(*) FILTER (WHERE l.expires_at >= clock_timestamp() - make_interval(secs => %(grace_s)s))::int,
    count(*) FILTER (
        WHERE m.state <> 4 AND l.expires_at < clock_timestamp() - make_interval(secs => %(grace_s)s + %(patience_s)s)
    )::int
FROM node_managers m
JOIN runner_leases l ON l.runner_id = m.runner_id
JOIN runners r ON r.id = m.runner_id
WHERE r.revoked_at IS NULL
