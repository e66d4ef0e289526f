-- Whether a pass right now could find a host for work: for suites that nobody serves, or for managers that just became
-- free. A host is one that is idle, or that lingers for a suite which is over and would have to make room. Loosely: the
-- pass itself decides. Driven by the few suites or managers that are given.
-- By task_suites_pkey, task_suites_group, group_runners_unique, suite_assignments_one_live, suite_assignments_live_suite,
-- active_tasks_claim; called by managers.services.early_pass.
WITH pair AS (
    SELECT s.id AS suite_id, gr.runner_id
    FROM task_suites s
    JOIN group_runners gr ON gr.group_id = s.group_id AND gr.role >= 1 AND gr.consent = 1
    WHERE s.id = ANY (%(suite_ids)s::bigint[])
        AND NOT EXISTS (SELECT FROM suite_assignments a WHERE a.suite_id = s.id AND a.released_at IS NULL)
    UNION ALL
    SELECT s.id, gr.runner_id
    FROM group_runners gr
    JOIN task_suites s ON s.group_id = gr.group_id AND s.state IN (0, 1)
    WHERE gr.runner_id = ANY (%(manager_ids)s::bigint[]) AND gr.role >= 1 AND gr.consent = 1
)
SELECT EXISTS (
    SELECT
    FROM pair p
    JOIN task_suites s ON s.id = p.suite_id AND s.state IN (0, 1) AND s.paused_at IS NULL AND s.blocked_at IS NULL
    JOIN runners r ON r.id = p.runner_id AND r.revoked_at IS NULL AND r.desired_state = 0 AND r.conn_state = 1
    JOIN node_managers m ON m.runner_id = r.id
    LEFT JOIN suite_assignments a ON a.manager_id = r.id AND a.released_at IS NULL
    LEFT JOIN task_suites former ON former.id = a.suite_id
    WHERE CASE WHEN a.id IS NULL THEN m.state = 0 ELSE a.state IN (2, 3) AND former.state = 2 END
        AND EXISTS (SELECT FROM active_tasks t WHERE t.is_ready AND t.queue_id = -s.id)
        AND (
            s.tags <@ r.tags
            OR EXISTS (
                SELECT FROM task_suite_managers e
                WHERE e.task_suite_id = s.id AND e.manager_id = r.id AND e.selection_type = 0 AND e.removed_at IS NULL
            )
        )
)
