-- Archives of tasks under the keys they have, outside any attempt, charged to their groups.
-- Relies on: artifacts_unique, active_tasks_uuid_key, archived_tasks_uuid_key. Called by: mitosis_site.importing.run.
WITH inserted AS (
    INSERT INTO artifacts (task_id, task_uuid, group_id, attempt, content_type, size, key, created_at, updated_at)
    SELECT t.id, r.task_uuid, t.group_id, 0, r.content_type, r.size, r.key, r.created_at, r.updated_at
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (
        task_uuid uuid, content_type smallint, size bigint, key text, created_at timestamptz, updated_at timestamptz
    )
    CROSS JOIN LATERAL (
        SELECT a.id, a.group_id FROM active_tasks a WHERE a.uuid = r.task_uuid
        UNION ALL
        SELECT a.id, a.group_id FROM archived_tasks a WHERE a.uuid = r.task_uuid
    ) t
    ON CONFLICT DO NOTHING
    RETURNING group_id, size
),
charged AS (
    UPDATE groups g SET storage_used = g.storage_used + c.size
    FROM (SELECT group_id, sum(size)::bigint AS size FROM inserted GROUP BY group_id) c
    WHERE g.id = c.group_id
)
SELECT count(*)::int FROM inserted
