-- What is wanted of a worker. By runners_pkey; called by workers.services.control_plane when a claim was refused for it.
SELECT desired_state FROM runners WHERE id = %(runner_id)s
