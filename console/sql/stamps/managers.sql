-- One line per watched manager that differs whenever something on its page does. Relies on: runners_uuid_key,
-- node_managers_pkey, suite_assignments_one_live. Called by: console.selectors.stamps.
SELECT r.uuid::text,
    concat_ws(
        ',', n.state, n.last_heartbeat, n.wish_at, r.desired_state, r.conn_state, r.updated_at, r.revoked_at,
        a.id, a.state, a.renewals
    )
FROM runners r
JOIN node_managers n ON n.runner_id = r.id
LEFT JOIN suite_assignments a ON a.manager_id = r.id AND a.released_at IS NULL
WHERE r.uuid = ANY (%(uuids)s::uuid[])
