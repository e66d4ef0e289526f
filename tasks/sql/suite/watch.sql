-- A suite somebody watches, if the user is in its group: where it stands and its counts, in one row.
-- Relies on: task_suites_uuid_key, suite_count_deltas_suite. Called by: tasks.selectors_watch.
SELECT s.id, s.state, s.paused_at IS NOT NULL, s.blocked_reason, coalesce(n.total, 0)::bigint,
    coalesce(n.pending, 0)::bigint, coalesce(n.succeeded, 0)::bigint, coalesce(n.failed, 0)::bigint,
    coalesce(n.cancelled, 0)::bigint
FROM task_suites s
JOIN memberships m ON m.group_id = s.group_id AND m.user_id = %(user_id)s
LEFT JOIN LATERAL (
    SELECT sum(d.total) AS total, sum(d.pending) AS pending, sum(d.succeeded) AS succeeded, sum(d.failed) AS failed,
        sum(d.cancelled) AS cancelled
    FROM suite_count_deltas d
    WHERE d.suite_id = s.id
) n ON true
WHERE s.uuid = %(uuid)s
