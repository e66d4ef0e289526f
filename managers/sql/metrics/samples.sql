-- What one manager measured lately, averaged over equal steps. By the primary key of manager_samples; called by
-- managers.selectors_metrics.
SELECT date_bin(make_interval(secs => %(step_s)s::float8), s.at, 'epoch'::timestamptz) AS at, n.name,
    avg(n.value::float8), max(n.value::float8)
FROM manager_samples s
CROSS JOIN LATERAL jsonb_each_text(s.numbers) AS n (name, value)
WHERE s.manager_id = %(manager_id)s::bigint
    AND s.at >= clock_timestamp() - make_interval(secs => %(window_s)s::float8)
GROUP BY 1, 2
ORDER BY 1, 2
