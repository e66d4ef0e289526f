-- Two processes share one identity: neither gets work. By runners_pkey; called by workers.services.control_plane.
UPDATE runners
SET desired_state = 2, updated_at = clock_timestamp()
WHERE id = %(runner_id)s AND desired_state = 0
