-- One line per watched suite that differs whenever its progress does: so that pages of quiet suites cost nothing.
-- Relies on: task_suites_uuid_key, suite_count_deltas_suite, suite_assignments_live_suite, active_tasks_runner.
-- Called by: console.selectors.stamps.
SELECT s.uuid::text,
    concat_ws(',', s.updated_at, s.state, s.paused_at, s.blocked_at, n.total, n.pending, n.failed, h.held)
FROM task_suites s
LEFT JOIN LATERAL (
    SELECT sum(d.total) AS total, sum(d.pending) AS pending, sum(d.failed) AS failed
    FROM suite_count_deltas d
    WHERE d.suite_id = s.id
) n ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS held
    FROM active_tasks t
    WHERE t.suite_id = s.id
        AND t.runner_id = ANY (ARRAY(
            SELECT a.manager_id FROM suite_assignments a WHERE a.suite_id = s.id AND a.released_at IS NULL
        ))
) h ON true
WHERE s.uuid = ANY (%(uuids)s::uuid[])
