-- What managers measured: samples as they came and hourly roll-ups, partitioned by time so that old ones are dropped, not
-- deleted. No foreign keys: history must not hold a heartbeat up. The default partitions catch what upkeep has not made
-- room for yet; managers.services.metrics_history moves it. Run by migration 0002. A shipped file is never edited.
CREATE TABLE manager_samples (
    manager_id bigint NOT NULL,
    at timestamptz NOT NULL,
    numbers jsonb NOT NULL,
    PRIMARY KEY (manager_id, at)
) PARTITION BY RANGE (at);
CREATE TABLE manager_samples_default PARTITION OF manager_samples DEFAULT;
-- Rows arrive in the order of time, so a few bytes per page are enough to find an hour.
CREATE INDEX manager_samples_at ON manager_samples USING brin (at) WITH (pages_per_range = 32);
CREATE TABLE manager_hours (
    manager_id bigint NOT NULL,
    at timestamptz NOT NULL,
    samples integer NOT NULL,
    mean jsonb NOT NULL,
    low jsonb NOT NULL,
    high jsonb NOT NULL,
    PRIMARY KEY (manager_id, at)
) PARTITION BY RANGE (at);
CREATE TABLE manager_hours_default PARTITION OF manager_hours DEFAULT;
-- Hours whose roll-up is complete.
CREATE TABLE manager_hours_done (
    at timestamptz PRIMARY KEY,
    done_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
