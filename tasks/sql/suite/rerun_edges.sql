-- What the tasks waited for, by the newest run of each upstream task.
-- Relies on: task_dependencies_edge, task_reruns_original. Called by: tasks.services.suite_rerun.
WITH RECURSIVE edge AS (
    SELECT d.task_id, d.upstream_id AS latest_id, d.condition
    FROM task_dependencies d
    WHERE d.task_id = ANY (%(task_ids)s::bigint[])
    UNION ALL
    SELECT e.task_id, r.task_id, e.condition
    FROM edge e
    JOIN task_reruns r ON r.original_id = e.latest_id
)
SELECT e.task_id, e.latest_id AS upstream_id, coalesce(t.uuid, a.uuid) AS upstream_uuid, e.condition
FROM edge e
LEFT JOIN active_tasks t ON t.id = e.latest_id
LEFT JOIN archived_tasks a ON a.id = e.latest_id
WHERE NOT EXISTS (SELECT FROM task_reruns r WHERE r.original_id = e.latest_id)
ORDER BY e.task_id, e.latest_id
