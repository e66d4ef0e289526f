-- Resume: neither paused nor blocked any more, and the failures so far are forgiven. By the primary key and
-- suite_count_deltas_suite; called by suites.services.pausing.
UPDATE task_suites s
SET paused_at = NULL,
    blocked_at = NULL,
    blocked_reason = NULL,
    forgiven_failed = CASE WHEN s.blocked_at IS NULL THEN s.forgiven_failed ELSE n.failed END,
    forgiven_succeeded = CASE WHEN s.blocked_at IS NULL THEN s.forgiven_succeeded ELSE n.succeeded END,
    updated_at = clock_timestamp()
FROM (
    SELECT coalesce(sum(d.failed), 0) AS failed, coalesce(sum(d.succeeded), 0) AS succeeded
    FROM suite_count_deltas d
    WHERE d.suite_id = %(suite_id)s
) n
WHERE s.id = %(suite_id)s AND s.state <> 3
RETURNING s.id
