-- Upstream tasks that ended before this submission. Relies on: archived_tasks_uuid_key. Called by: tasks.store.find_ended.
SELECT t.uuid, t.id, t.outcome
FROM archived_tasks t
WHERE t.uuid = ANY (%(uuids)s::uuid[])
    AND t.group_id + 0 = %(group_id)s::bigint  -- + 0: by uuid, not by the group's index
    AND t.suite_id IS NOT DISTINCT FROM %(suite_id)s::bigint
