-- The scheduler's pairs of manager and suite become engagements. Whatever changed since it looked is checked again here,
-- and the partial unique index has the last word. By suite_assignments_one_live; called by managers.services.scheduler.
INSERT INTO suite_assignments (suite_id, manager_id, state, lease_expires_at)
SELECT s.id, r.id, 0, clock_timestamp() + make_interval(secs => %(lease_s)s)
FROM unnest(%(manager_ids)s::bigint[], %(suite_ids)s::bigint[]) AS p (manager_id, suite_id)
JOIN task_suites s ON s.id = p.suite_id AND s.state IN (0, 1) AND s.paused_at IS NULL AND s.blocked_at IS NULL
JOIN runners r ON r.id = p.manager_id AND r.revoked_at IS NULL AND r.desired_state = 0
ORDER BY r.id
ON CONFLICT (manager_id) WHERE released_at IS NULL DO NOTHING
RETURNING id, suite_id, manager_id, (SELECT r.uuid FROM runners r WHERE r.id = manager_id)
