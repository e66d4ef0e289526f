-- Workers of the existing server, as ones that left: their tokens were signed with keys we do not have, and a lease
-- that is over by its last heartbeat says when each was seen. They register anew as other workers.
-- Relies on: runners_uuid_key, users_username_key. Called by: mitosis_site.importing.run.
WITH r AS MATERIALIZED (
    SELECT *
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS x (
        uuid uuid, owner text, tags text[], labels text[], created_at timestamptz, updated_at timestamptz,
        last_heartbeat timestamptz
    )
),
inserted AS (
    INSERT INTO runners (
        uuid, kind, owner_id, conn_state, desired_state, revoked_at, tags, labels, created_at, updated_at
    )
    SELECT r.uuid, %(independent)s, u.id, %(lost)s, %(shutdown)s, clock_timestamp(), r.tags, r.labels, r.created_at,
        r.updated_at
    FROM r
    JOIN users u ON u.username = r.owner
    ON CONFLICT (uuid) DO NOTHING
    RETURNING id, uuid, session_epoch
),
described AS (
    INSERT INTO workers (runner_id, lease_ttl_s) SELECT i.id, %(lease_ttl_s)s FROM inserted i
),
leased AS (
    INSERT INTO runner_leases (runner_id, session_epoch, expires_at)
    SELECT i.id, i.session_epoch, r.last_heartbeat + make_interval(secs => %(lease_ttl_s)s)
    FROM inserted i
    JOIN r ON r.uuid = i.uuid
)
SELECT count(*)::int FROM inserted
