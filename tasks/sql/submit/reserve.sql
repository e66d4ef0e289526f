-- Reserve ids and numbers for tasks that are written later. In a transaction of its own, so that nobody who
-- submits to the same group waits for a long COPY; numbers of a submission that fails stay unused.
-- Relies on: groups_pkey. Called by: tasks.store.reserve.
WITH numbered AS (
    UPDATE groups SET task_count = task_count + %(count)s::int
    WHERE id = %(group_id)s::bigint
    RETURNING task_count - %(count)s::int + 1 AS first_number
)
SELECT n.first_number, ARRAY(SELECT nextval('active_tasks_id_seq') FROM generate_series(1, %(count)s::int)) AS ids
FROM numbered n
