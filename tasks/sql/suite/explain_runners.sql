-- Every runner of some kinds that the caller may know of, with all that decides whether it takes tasks of a group or a
-- suite. Known are those that a group of the caller has accepted, the caller's own, and those that ask to serve the group
-- if the caller is one of its Admins, who answer them.
-- Relies on: runners_kind_id, group_runners_unique, suite_assignments_one_live, task_suite_managers_unique,
-- active_tasks_runner. Called by: tasks.services.explain.
SELECT r.id, r.uuid, r.kind, r.tags || coalesce(w.node_tags, '{}'), gr.role, gr.consent, r.desired_state, coalesce(m.wish_reason, ''), m.probe_after,
    r.conn_state = 1 AS is_connected, l.expires_at > clock_timestamp() AS is_alive,
    coalesce(m.last_heartbeat, l.expires_at - make_interval(secs => coalesce(w.lease_ttl_s, 0))) AS last_seen, m.state,
    a.suite_id = %(suite_id)s::bigint AS is_ours, a.state, a.lease_expires_at,
    CASE WHEN EXISTS (
        SELECT FROM memberships k WHERE k.group_id = s.group_id AND k.user_id = %(user_id)s::bigint
    ) THEN s.uuid END AS suite_uuid,
    s.priority, e.selection_type, e.removed_at IS NOT NULL AS is_removed,
    CASE p.trouble
        WHEN 0 THEN 'the hook failed' || coalesce(' with exit code ' || p.exit_code, '')
        WHEN 1 THEN 'the hook ran into its timeout'
        WHEN 2 THEN 'its files could not be fetched in time (network)'
        WHEN 3 THEN 'limits that were asked for cannot be enforced there'
    END || coalesce(': ' || nullif(p.message, ''), '') AS preparation_failure,
    r.kind = 1 AND EXISTS (SELECT FROM active_tasks t WHERE t.runner_id = r.id) AS is_busy
FROM runners r
JOIN runner_leases l ON l.runner_id = r.id
LEFT JOIN node_managers m ON m.runner_id = r.id
LEFT JOIN workers w ON w.runner_id = r.id
LEFT JOIN group_runners gr ON gr.runner_id = r.id AND gr.group_id = %(group_id)s::bigint
LEFT JOIN suite_assignments a ON a.manager_id = r.id AND a.released_at IS NULL
LEFT JOIN task_suites s ON s.id = a.suite_id
LEFT JOIN task_suite_managers e ON e.manager_id = r.id AND e.task_suite_id = %(suite_id)s::bigint
LEFT JOIN preparation_failures p
    ON p.manager_id = r.id AND p.suite_id = %(suite_id)s::bigint AND p.forgiven_at IS NULL
WHERE r.kind = ANY (%(kinds)s::smallint[])
    AND r.revoked_at IS NULL
    AND (
        gr.consent = 1
        OR r.owner_id = %(user_id)s::bigint
        OR (
            gr.id IS NOT NULL
            AND EXISTS (
                SELECT FROM memberships k
                WHERE k.group_id = gr.group_id AND k.user_id = %(user_id)s::bigint AND k.role = 2
            )
        )
        OR EXISTS (
            SELECT
            FROM group_runners o
            JOIN memberships k ON k.group_id = o.group_id
            WHERE o.runner_id = r.id AND o.consent = 1 AND k.user_id = %(user_id)s::bigint
        )
    )
ORDER BY r.id
LIMIT %(max_rows)s::int
