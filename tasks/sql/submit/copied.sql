-- After COPY: the first events of the new rows and the suite's counts, in the same transaction.
-- Relies on: active_tasks_pkey. Called by: tasks.store.copy_tasks.
WITH logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id)
    SELECT 0, t.state, 1, 0, t.group_id, t.suite_id, t.id
    FROM active_tasks t
    WHERE t.id = ANY (%(ids)s::bigint[])
    ORDER BY t.id
    RETURNING task_id
),
counted AS (
    INSERT INTO suite_count_deltas (suite_id, total, pending)
    SELECT %(suite_id)s::bigint, count(*), count(*)
    FROM logged
    WHERE %(suite_id)s::bigint IS NOT NULL
    HAVING count(*) > 0
)
SELECT count(*)::int FROM logged
