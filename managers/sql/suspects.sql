-- Managers that fail what succeeds elsewhere: enough distinct tasks that crashed here and were finished by somebody else,
-- lately and since the evidence counts. One is enough for a manager on probation.
-- By task_failures_runner and archived_tasks_pkey; called by managers.services.quarantine.
SELECT m.runner_id, n.tasks, m.quarantine_count
FROM node_managers m
JOIN runners r ON r.id = m.runner_id AND r.revoked_at IS NULL AND r.desired_state = 0
CROSS JOIN LATERAL (
    SELECT count(*)::int AS tasks
    FROM task_execution_failures f
    JOIN archived_tasks t ON t.id = f.task_id
    WHERE f.runner_id = m.runner_id
        AND f.last_failure_at > greatest(m.evidence_since, clock_timestamp() - make_interval(secs => %(window_s)s))
        AND t.outcome = 0
        AND t.runner_id <> m.runner_id
) n
WHERE n.tasks >= CASE WHEN m.probation_until IS NULL THEN %(failures)s ELSE 1 END
ORDER BY m.runner_id
