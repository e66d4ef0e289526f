-- Half-empty pages and no index on expires_at let every heartbeat be a HOT update: no index churn, cheap vacuum.
ALTER TABLE runner_leases SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);
