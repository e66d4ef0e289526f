-- What a direct worker can do, as its newest session says; an older session changes nothing. By workers_pkey; called by
-- workers.services.control_plane.
UPDATE workers w
SET capabilities = %(capabilities)s::jsonb, node_tags = %(node_tags)s::text[], metadata_at = clock_timestamp()
FROM runners r
WHERE w.runner_id = %(runner_id)s
    AND r.id = w.runner_id
    AND r.session_epoch = %(session_epoch)s
    AND r.revoked_at IS NULL
