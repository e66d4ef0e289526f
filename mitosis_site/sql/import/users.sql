-- Users of the existing server that have no namesake here. One that has keeps what it has here, password included.
-- Relies on: users_username_key. Called by: mitosis_site.importing.run.
WITH inserted AS (
    INSERT INTO users (username, password, is_staff, state, group_quota, created_at, updated_at)
    SELECT r.username, r.password, r.admin, r.state, r.group_quota, r.created_at, r.updated_at
    FROM ROWS FROM (
        jsonb_to_recordset(%(rows)s::jsonb) AS (
            username text, password text, admin boolean, state smallint, group_quota int,
            created_at timestamptz, updated_at timestamptz
        )
    ) WITH ORDINALITY AS r
    WHERE NOT EXISTS (SELECT FROM users u WHERE u.username = r.username)
    ORDER BY r.ordinality
    RETURNING id
)
SELECT count(*)::int FROM inserted
