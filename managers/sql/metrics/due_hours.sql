-- Full hours of the samples' time that were not rolled up yet, oldest first. The last one gets a minute for statements that
-- are still under way. By manager_hours_done_pkey; called by managers.services.metrics_history.
SELECT h.at
FROM generate_series(
    date_trunc('hour', clock_timestamp() - make_interval(days => %(days)s::int)),
    date_trunc('hour', clock_timestamp() - interval '1 minute') - interval '1 hour',
    interval '1 hour'
) AS h (at)
WHERE NOT EXISTS (SELECT FROM manager_hours_done d WHERE d.at = h.at)
ORDER BY h.at
LIMIT %(hours)s::int
