-- Files of groups under the keys they have, charged to the groups. One that is here already stays.
-- Relies on: attachments_unique, groups_name_key. Called by: mitosis_site.importing.run.
WITH inserted AS (
    INSERT INTO attachments (group_id, key, content_type, size, created_at, updated_at)
    SELECT g.id, r.key, 0, r.size, r.created_at, r.updated_at
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (
        group_name text, key text, size bigint, created_at timestamptz, updated_at timestamptz
    )
    JOIN groups g ON g.name = r.group_name
    ON CONFLICT (group_id, key) DO NOTHING
    RETURNING group_id, size
),
charged AS (
    UPDATE groups g SET storage_used = g.storage_used + c.size
    FROM (SELECT group_id, sum(size)::bigint AS size FROM inserted GROUP BY group_id) c
    WHERE g.id = c.group_id
)
SELECT count(*)::int FROM inserted
