-- Groups of the existing server that have no namesake here; their creators get them counted.
-- task_count stays 0 until the tasks are in (totals.sql): it decides which numbers are free.
-- Relies on: groups_name_key, users_username_key. Called by: mitosis_site.importing.run.
WITH inserted AS (
    INSERT INTO groups (name, creator_id, state, storage_quota, created_at, updated_at)
    SELECT r.name, u.id, r.state, r.storage_quota, r.created_at, r.updated_at
    FROM ROWS FROM (
        jsonb_to_recordset(%(rows)s::jsonb) AS (
            name text, creator text, state smallint, storage_quota bigint, created_at timestamptz,
            updated_at timestamptz
        )
    ) WITH ORDINALITY AS r
    JOIN users u ON u.username = r.creator
    WHERE NOT EXISTS (SELECT FROM groups g WHERE g.name = r.name)
    ORDER BY r.ordinality
    RETURNING id, creator_id
),
counted AS (
    UPDATE users u SET group_count = u.group_count + c.n
    FROM (SELECT creator_id, count(*)::int AS n FROM inserted GROUP BY creator_id) c
    WHERE u.id = c.creator_id
)
SELECT count(*)::int FROM inserted
