-- Samples of many managers at once. By the primary key; called by managers.services.metrics_history after the heartbeats
-- they came with were written: a lost sample is a gap in a chart, a lost heartbeat a lost host.
INSERT INTO manager_samples (manager_id, at, numbers)
SELECT q.manager_id, statement_timestamp(), q.numbers::jsonb
FROM unnest(%(manager_ids)s::bigint[], %(numbers)s::text[]) AS q (manager_id, numbers)
ON CONFLICT (manager_id, at) DO NOTHING
