-- The suites of find/failing.sql are blocked and say why. By suite_count_deltas_suite.
UPDATE task_suites s
SET blocked_at = clock_timestamp(),
    blocked_reason = CASE
        WHEN n.failed >= s.max_failures THEN format('%%s tasks failed; the suite stops at %%s', n.failed, s.max_failures)
        ELSE format(
            '%%s of %%s tasks failed; the suite stops at %%s %%%%',
            n.failed, n.ended, round((s.failure_rate * 100)::numeric, 1)
        )
    END,
    updated_at = clock_timestamp()
FROM task_suites o
CROSS JOIN LATERAL (
    SELECT coalesce(sum(d.failed), 0) - o.forgiven_failed AS failed,
        coalesce(sum(d.failed + d.succeeded), 0) - o.forgiven_failed - o.forgiven_succeeded AS ended
    FROM suite_count_deltas d
    WHERE d.suite_id = o.id
) n
WHERE s.id = ANY (%(suite_ids)s::bigint[]) AND o.id = s.id AND s.blocked_at IS NULL
RETURNING s.id
