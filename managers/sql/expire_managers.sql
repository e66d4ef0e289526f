-- Managers whose lease ran out and that are not Offline yet, or are still engaged. Chosen by fact, so the sweep may stop
-- half-way and be run again. Their leases are locked first, as heartbeats do; one that a heartbeat is renewing at this
-- moment is left alone. By node_managers_pkey and suite_assignments_one_live; called by managers.services.expiry.
SELECT l.runner_id
FROM runner_leases l
JOIN node_managers m ON m.runner_id = l.runner_id
WHERE l.expires_at < clock_timestamp() - make_interval(secs => %(grace_s)s)
    AND (
        m.state = ANY (%(sources)s::smallint[])
        OR EXISTS (SELECT FROM suite_assignments a WHERE a.manager_id = l.runner_id AND a.released_at IS NULL)
    )
ORDER BY l.runner_id
LIMIT %(batch)s
FOR UPDATE OF l SKIP LOCKED
