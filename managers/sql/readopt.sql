-- A manager that was given up is back and still has the suite's environment. The engagement it has is returned; without
-- one it gets a new one, if the suite is live, the group's role still holds, and nobody sent it away.
-- By suite_assignments_one_live; called by managers.services.engagement.
WITH kept AS (
    SELECT a.id
    FROM suite_assignments a
    JOIN task_suites s ON s.id = a.suite_id AND s.uuid = %(suite_uuid)s
    WHERE a.manager_id = %(manager_id)s AND a.released_at IS NULL
),
made AS (
    INSERT INTO suite_assignments (suite_id, manager_id, state, lease_expires_at, prepared_at)
    SELECT s.id, r.id, 2, clock_timestamp() + make_interval(secs => %(lease_s)s), clock_timestamp()
    FROM task_suites s
    JOIN runners r ON r.id = %(manager_id)s AND r.revoked_at IS NULL AND r.desired_state = 0
    JOIN group_runners gr ON gr.group_id = s.group_id AND gr.runner_id = r.id AND gr.role >= 1 AND gr.consent = 1
    WHERE s.uuid = %(suite_uuid)s
        AND s.state IN (0, 1)
        AND s.blocked_at IS NULL
        AND EXISTS (
            SELECT FROM suite_assignments o
            WHERE o.suite_id = s.id AND o.manager_id = r.id AND o.prepared_at IS NOT NULL AND o.release_reason = 7
        )
        AND NOT EXISTS (SELECT FROM kept)
    ON CONFLICT (manager_id) WHERE released_at IS NULL DO NOTHING
    RETURNING id
)
SELECT id FROM kept UNION ALL SELECT id FROM made
