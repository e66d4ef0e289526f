-- The counters of suites, exact at the moment of the snapshot. Relies on: suite_count_deltas_suite.
-- Called by: tasks.store.suite_counts.
SELECT d.suite_id, sum(d.total)::bigint AS total, sum(d.pending)::bigint AS pending, sum(d.succeeded)::bigint AS succeeded,
    sum(d.failed)::bigint AS failed, sum(d.cancelled)::bigint AS cancelled
FROM suite_count_deltas d
WHERE d.suite_id = ANY (%(suite_ids)s::bigint[])
GROUP BY d.suite_id
