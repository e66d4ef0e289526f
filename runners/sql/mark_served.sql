-- A serving process says that heartbeats can be taken. After a gap in which nobody could, every runner that was alive when
-- the gap began gets one full lease: whoever was kept from beating by our absence must not be reaped for it.
-- In id order, as renew_leases locks them. Relies on: ingest_presence_pkey, runner_leases_pkey. Called by:
-- runners.services.presence, every few seconds in each process. Workers have leases of their own length.
WITH moment AS MATERIALIZED (
    SELECT clock_timestamp() AS now, (SELECT p.seen_at FROM ingest_presence p WHERE p.id = 1) AS last_seen_at
),
mark AS (
    INSERT INTO ingest_presence AS p (id, up_since, seen_at)
    SELECT 1, m.now, m.now FROM moment m
    ON CONFLICT (id) DO UPDATE
    SET up_since = CASE
            WHEN p.seen_at < excluded.seen_at - make_interval(secs => %(gap_s)s::float8) THEN excluded.seen_at
            ELSE p.up_since
        END,
        seen_at = excluded.seen_at
    RETURNING p.up_since = p.seen_at AS is_new
),
spared AS MATERIALIZED (
    SELECT l.runner_id, coalesce(w.lease_ttl_s, %(lease_ttl_s)s::float8) AS ttl_s
    FROM runner_leases l
    JOIN runners r ON r.id = l.runner_id
    LEFT JOIN workers w ON w.runner_id = l.runner_id
    CROSS JOIN moment m
    WHERE (SELECT k.is_new FROM mark k)
        AND r.revoked_at IS NULL
        AND l.expires_at >= coalesce(m.last_seen_at, '-infinity')
    ORDER BY l.runner_id
    FOR NO KEY UPDATE OF l
),
renewed AS (
    UPDATE runner_leases l
    SET expires_at = greatest(l.expires_at, clock_timestamp() + make_interval(secs => s.ttl_s))
    FROM spared s
    WHERE l.runner_id = s.runner_id
)
SELECT k.is_new, (SELECT count(*) FROM spared)::int FROM mark k
