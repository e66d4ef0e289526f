-- Waiting tasks of the import that have nothing to wait for here: ready, as `any` has it.
-- Relies on: active_tasks_uuid_key. Called by: mitosis_site.importing.run.
UPDATE active_tasks t SET state = 1, waiting_on = 0
WHERE t.uuid = ANY (%(uuids)s::uuid[])
    AND t.state = 0
    AND NOT EXISTS (SELECT FROM task_dependencies d WHERE d.task_id = t.id)
