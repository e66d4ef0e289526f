-- Fold counter rows: many per suite become one with the same sum. Readers see either all of them or the one.
-- Relies on: suite_count_deltas_pkey. Called by: tasks.store.fold_counts.
WITH old AS (
    DELETE FROM suite_count_deltas d
    WHERE d.id = ANY (ARRAY(
        SELECT c.id
        FROM suite_count_deltas c
        WHERE c.suite_id IN (
            SELECT m.suite_id FROM suite_count_deltas m GROUP BY m.suite_id HAVING count(*) > 1
        )
        ORDER BY c.id
        LIMIT %(max_rows)s::int
        FOR UPDATE OF c SKIP LOCKED
    ))
    RETURNING d.suite_id, d.total, d.pending, d.succeeded, d.failed, d.cancelled
),
summed AS (
    INSERT INTO suite_count_deltas (suite_id, total, pending, succeeded, failed, cancelled)
    SELECT o.suite_id, sum(o.total), sum(o.pending), sum(o.succeeded), sum(o.failed), sum(o.cancelled)
    FROM old o
    GROUP BY o.suite_id
)
SELECT count(*)::int AS folded FROM old
