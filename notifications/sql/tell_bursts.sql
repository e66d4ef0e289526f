-- Suites with so many failed tasks within the window, told to webhooks that were not told of the same suite within it.
-- By failure_minutes_minute, webhook_deliveries_log; called by: notifications.services.bursts.
WITH burst AS (
    SELECT f.suite_id, sum(f.failed)::int AS failed, min(f.minute) AS since
    FROM failure_minutes f
    WHERE f.minute > clock_timestamp() - make_interval(secs => %(window_s)s::float8)
    GROUP BY f.suite_id
    HAVING sum(f.failed) >= %(failures)s::int
)
INSERT INTO webhook_deliveries (uuid, webhook_id, kind, subject, data, state)
SELECT gen_random_uuid(), w.id, 4, s.uuid, jsonb_build_object(
    'group_name', g.name, 'suite_uuid', s.uuid, 'suite_name', s.name, 'failed', b.failed, 'since', b.since), 0
FROM burst b
JOIN task_suites s ON s.id = b.suite_id
JOIN groups g ON g.id = s.group_id
JOIN webhooks w ON w.group_id = s.group_id AND w.is_enabled AND 4 = ANY (w.kinds)
WHERE NOT EXISTS (
    SELECT FROM webhook_deliveries d
    WHERE d.webhook_id = w.id AND d.kind = 4 AND d.subject = s.uuid
        AND d.created_at > clock_timestamp() - make_interval(secs => %(window_s)s::float8)
)
