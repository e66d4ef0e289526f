-- The edges of new tasks, in the transaction that inserts them. Relies on: nothing. Called by: tasks.services.submit.
WITH inserted AS (
    INSERT INTO task_dependencies (task_id, upstream_id, condition)
    SELECT q.task_id, q.upstream_id, q.condition
    FROM unnest(%(task_ids)s::bigint[], %(upstream_ids)s::bigint[], %(conditions)s::smallint[])
        AS q (task_id, upstream_id, condition)
    RETURNING task_id
)
SELECT count(*)::int FROM inserted
