-- Ended tasks of a suite that shall run again and have not been: oldest first. `uuids` NULL means all of them.
-- Relies on: archived_tasks_suite, task_reruns_original. Called by: tasks.services.suite_rerun.
SELECT a.id, a.uuid, a.tags, a.pinned_runner_id
FROM archived_tasks a
WHERE a.suite_id = %(suite_id)s::bigint
    AND a.outcome = ANY (%(outcomes)s::smallint[])
    AND (%(uuids)s::uuid[] IS NULL OR a.uuid = ANY (%(uuids)s::uuid[]))
    AND NOT EXISTS (SELECT FROM task_reruns r WHERE r.original_id = a.id)
ORDER BY a.id
LIMIT %(max_tasks)s::int
