-- Leases that are about to be renewed, in id order, so two coordinators with the same runners cannot deadlock. A statement of
-- its own: one that locks a row and updates it in the same breath may wait for whoever waits for it.
-- By the primary key; called by runners.services.sessions and managers.services.heartbeat.
SELECT l.runner_id FROM runner_leases l WHERE l.runner_id = ANY (%(runner_ids)s::bigint[])
ORDER BY l.runner_id
FOR NO KEY UPDATE OF l
