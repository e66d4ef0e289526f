-- One hour of some managers: mean, least and most of each number. Idempotent. By the primary key of manager_samples;
-- called by managers.services.metrics_history.
INSERT INTO manager_hours AS h (manager_id, at, samples, mean, low, high)
SELECT k.manager_id, %(hour)s::timestamptz, max(k.samples), jsonb_object_agg(k.name, k.mean),
    jsonb_object_agg(k.name, k.low), jsonb_object_agg(k.name, k.high)
FROM (
    SELECT s.manager_id, n.name, count(*)::int AS samples, avg(n.value::float8) AS mean, min(n.value::float8) AS low,
        max(n.value::float8) AS high
    FROM manager_samples s
    CROSS JOIN LATERAL jsonb_each_text(s.numbers) AS n (name, value)
    WHERE s.manager_id = ANY (%(manager_ids)s::bigint[])
        AND s.at >= %(hour)s::timestamptz AND s.at < %(hour)s::timestamptz + interval '1 hour'
    GROUP BY s.manager_id, n.name
) k
GROUP BY k.manager_id
ON CONFLICT (manager_id, at) DO UPDATE
SET samples = excluded.samples, mean = excluded.mean, low = excluded.low, high = excluded.high
