-- Who belongs to which group. A role somebody has here already stays as it is.
-- Relies on: memberships_user_group_unique. Called by: mitosis_site.importing.run.
WITH inserted AS (
    INSERT INTO memberships (user_id, group_id, role)
    SELECT u.id, g.id, r.role
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (username text, group_name text, role smallint)
    JOIN users u ON u.username = r.username
    JOIN groups g ON g.name = r.group_name
    ON CONFLICT (user_id, group_id) DO NOTHING
    RETURNING id
)
SELECT count(*)::int FROM inserted
