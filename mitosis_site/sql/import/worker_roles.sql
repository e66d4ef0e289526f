-- Which group had which role on which worker; the other server knew no consent, so it is given.
-- Relies on: group_runners_unique, runners_uuid_key. Called by: mitosis_site.importing.run.
WITH inserted AS (
    INSERT INTO group_runners (group_id, runner_id, role, consent)
    SELECT g.id, w.id, r.role, %(accepted)s
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (uuid uuid, group_name text, role smallint)
    JOIN runners w ON w.uuid = r.uuid
    JOIN groups g ON g.name = r.group_name
    ON CONFLICT (group_id, runner_id) DO NOTHING
    RETURNING id
)
SELECT count(*)::int FROM inserted
