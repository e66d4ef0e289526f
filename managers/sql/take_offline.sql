-- Managers whose lease is locked and over. By the primary key; called by managers.services.expiry.
UPDATE node_managers m
SET state = 4
WHERE m.runner_id = ANY (%(manager_ids)s::bigint[]) AND m.state = ANY (%(sources)s::smallint[])
