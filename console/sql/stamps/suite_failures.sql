-- One line per watched suite that differs whenever one more of its tasks has failed, or a preparation failed or was forgiven.
-- Relies on: task_suites_uuid_key, suite_count_deltas_suite, preparation_failures_open. Called by: console.selectors.stamps.
SELECT s.uuid::text, concat_ws(',', n.failed, p.failures)
FROM task_suites s
LEFT JOIN LATERAL (
    SELECT sum(d.failed) AS failed
    FROM suite_count_deltas d
    WHERE d.suite_id = s.id
) n ON true
LEFT JOIN LATERAL (
    SELECT concat_ws('/', count(*), max(f.failed_at)) AS failures
    FROM preparation_failures f
    WHERE f.suite_id = s.id AND f.forgiven_at IS NULL
) p ON true
WHERE s.uuid = ANY (%(uuids)s::uuid[])
