-- Heartbeats of managers: the lease of the present session, then what the manager says of itself. A beat of an older
-- session changes nothing and is missing in the answer, which also says whose metrics are due for the history.
-- By runner_leases_pkey and node_managers_pkey; called by
-- managers.services.heartbeat, after runners/sql/lock_leases.sql when there are several.
WITH beat AS (
    SELECT * FROM unnest(
        %(manager_ids)s::bigint[], %(session_epochs)s::bigint[], %(states)s::smallint[], %(metrics)s::text[],
        %(config_versions)s::int[]
    ) AS b (manager_id, session_epoch, state, metrics, config_version)
),
renewed AS (
    UPDATE runner_leases l
    SET expires_at = clock_timestamp() + make_interval(secs => %(ttl_s)s)
    FROM beat b
    JOIN runners r ON r.id = b.manager_id AND r.revoked_at IS NULL
    WHERE l.runner_id = b.manager_id AND l.session_epoch = b.session_epoch
    RETURNING l.runner_id, l.expires_at
),
seen AS (
    UPDATE node_managers m
    SET state = b.state,
        last_heartbeat = clock_timestamp(),
        metrics = coalesce(b.metrics::jsonb, m.metrics),
        config_version = coalesce(b.config_version, m.config_version),
        sampled_at = CASE
            WHEN b.metrics IS NOT NULL
                AND (m.sampled_at IS NULL OR m.sampled_at <= statement_timestamp() - make_interval(secs => %(sample_s)s))
                THEN statement_timestamp()
            ELSE m.sampled_at
        END
    FROM renewed r
    JOIN beat b ON b.manager_id = r.runner_id
    WHERE m.runner_id = r.runner_id
    RETURNING m.runner_id, m.sampled_at
)
SELECT r.runner_id, r.expires_at, coalesce(s.sampled_at = statement_timestamp(), false)
FROM renewed r
LEFT JOIN seen s ON s.runner_id = r.runner_id
