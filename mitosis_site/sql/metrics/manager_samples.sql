-- The newest sample of the first so many managers that are there. By node_managers_pkey; called by: mitosis_site.metrics.managers.
SELECT r.uuid, extract(epoch FROM clock_timestamp() - m.last_heartbeat)::float8, coalesce(m.metrics, '{}'::jsonb)::text
FROM node_managers m
JOIN runners r ON r.id = m.runner_id
WHERE r.revoked_at IS NULL AND m.state <> 4
ORDER BY r.uuid
LIMIT %(max_managers)s::int
