-- What a worker no longer names at its register is gone. By worker_resources_one; called by workers.services.control_plane.
DELETE FROM worker_resources
WHERE runner_id = %(runner_id)s AND NOT resource_id = ANY (%(kept)s::text[])
