-- What one manager measured over days, from the hourly roll-ups, averaged over equal steps. By the primary key of
-- manager_hours; called by managers.selectors_metrics.
SELECT date_bin(make_interval(secs => %(step_s)s::float8), h.at, 'epoch'::timestamptz) AS at, n.name,
    avg(n.value::float8), max((h.high ->> n.name)::float8)
FROM manager_hours h
CROSS JOIN LATERAL jsonb_each_text(h.mean) AS n (name, value)
WHERE h.manager_id = %(manager_id)s::bigint
    AND h.at >= clock_timestamp() - make_interval(secs => %(window_s)s::float8)
GROUP BY 1, 2
ORDER BY 1, 2
