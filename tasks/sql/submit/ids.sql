-- Ids for tasks that refer to each other, ascending. Relies on: nothing. Called by: tasks.services.graph.
SELECT nextval('active_tasks_id_seq') AS id FROM generate_series(1, %(count)s::int)
