-- Quarantined managers that may be tried again, locked. By node_managers_pkey; called by managers.services.quarantine.
SELECT r.id
FROM node_managers m
JOIN runners r ON r.id = m.runner_id
WHERE r.desired_state = 2 AND r.revoked_at IS NULL AND m.probe_after <= clock_timestamp()
ORDER BY r.id
FOR NO KEY UPDATE OF r SKIP LOCKED
