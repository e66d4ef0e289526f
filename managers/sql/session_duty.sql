-- What the coordinator wants of connected managers right now: the wish, the configuration, the engagement.
-- By runners_pkey and suite_assignments_one_live; called by managers.services.session_duty, with every heartbeat.
SELECT r.id, r.desired_state, m.is_forced, coalesce(c.version, 0), coalesce(c.heartbeat_s, 0), coalesce(c.lease_duration_s, 0),
    a.id, a.state, a.release_reason, s.uuid, s.paused_at IS NOT NULL
FROM runners r
JOIN node_managers m ON m.runner_id = r.id
LEFT JOIN manager_config c ON c.id = 1
LEFT JOIN suite_assignments a ON a.manager_id = r.id AND a.released_at IS NULL
LEFT JOIN task_suites s ON s.id = a.suite_id
WHERE r.id = ANY (%(manager_ids)s::bigint[])
