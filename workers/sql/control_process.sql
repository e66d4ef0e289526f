-- Which process of a worker speaks in the present session. By runners_pkey; called by workers.services.control_plane.
UPDATE runners
SET process_id = %(process_id)s, updated_at = clock_timestamp()
WHERE id = %(runner_id)s AND session_epoch = %(session_epoch)s AND revoked_at IS NULL
