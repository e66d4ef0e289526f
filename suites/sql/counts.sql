-- The counters of suites, exact at the moment of the snapshot: the sum of the rows that every statement adds which lets a
-- task enter or leave the queue (ADR 0012). By suite_count_deltas_suite; called by suites.selectors.
SELECT d.suite_id, sum(d.total)::bigint, sum(d.pending)::bigint, sum(d.succeeded)::bigint, sum(d.failed)::bigint,
    sum(d.cancelled)::bigint
FROM suite_count_deltas d
WHERE d.suite_id = ANY (%(suite_ids)s::bigint[])
GROUP BY d.suite_id
