-- Undoes 0002_suite_keys.sql.
ALTER TABLE suite_count_deltas DROP CONSTRAINT suite_count_deltas_suite_fk;
ALTER TABLE task_attempts DROP CONSTRAINT task_attempts_assignment_fk;
ALTER TABLE archived_tasks DROP CONSTRAINT archived_tasks_suite_fk, DROP CONSTRAINT archived_tasks_assignment_fk;
ALTER TABLE active_tasks DROP CONSTRAINT active_tasks_suite_fk, DROP CONSTRAINT active_tasks_assignment_fk;
