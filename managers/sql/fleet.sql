-- Every manager with what the scheduler wants to know of it, and its engagement if it has one.
-- By node_managers_pkey, suite_assignments_one_live, active_tasks_runner; called by managers.services.snapshot.
SELECT r.id, r.tags,
    ARRAY(
        SELECT gr.group_id FROM group_runners gr
        WHERE gr.runner_id = r.id AND gr.role >= 1 AND gr.consent = 1
    ) AS group_ids,
    m.state, r.desired_state,
    r.conn_state = 1 AND l.expires_at > clock_timestamp() AS is_reachable,
    m.is_forced,
    a.id, a.suite_id, a.state,
    extract(epoch FROM clock_timestamp() - a.created_at)::float8,
    a.lease_expires_at <= clock_timestamp(),
    extract(epoch FROM clock_timestamp() - a.idle_since)::float8,
    a.id IS NOT NULL AND EXISTS (SELECT FROM active_tasks t WHERE t.runner_id = r.id)
FROM node_managers m
JOIN runners r ON r.id = m.runner_id
JOIN runner_leases l ON l.runner_id = m.runner_id
LEFT JOIN suite_assignments a ON a.manager_id = m.runner_id AND a.released_at IS NULL
WHERE r.revoked_at IS NULL
