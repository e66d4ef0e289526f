-- The log of webhooks by state, and the age of the oldest of each. The log is trimmed. Called by: mitosis_site.metrics.queue.
SELECT d.state, count(*)::bigint, extract(epoch FROM clock_timestamp() - min(d.created_at))::float8
FROM webhook_deliveries d
GROUP BY d.state
