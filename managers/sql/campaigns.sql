-- Every suite that may have work or still has hosts. `pending` counts everything that has not ended; what could be claimed
-- now is read by demands.sql. By task_suites_live, suite_assignments_live_suite, suite_count_deltas_suite; called by
-- managers.services.snapshot.
SELECT s.id, s.group_id, s.tags, s.priority, coalesce(g.weight, 1), s.auto_match,
    (s.worker_schedule ->> 'worker_count')::int, s.max_running, s.state,
    s.paused_at IS NOT NULL, s.blocked_at IS NOT NULL, s.linger_seconds,
    (SELECT coalesce(sum(d.pending), 0)::bigint FROM suite_count_deltas d WHERE d.suite_id = s.id)
FROM task_suites s
LEFT JOIN group_shares g ON g.group_id = s.group_id
WHERE s.state IN (0, 1) OR s.id IN (SELECT a.suite_id FROM suite_assignments a WHERE a.released_at IS NULL)
