-- Undoes 0008_proven_keys.sql.
DROP TRIGGER tasks_keep_assignment ON suite_assignments;
DROP TRIGGER tasks_keep_runner ON runners;
DROP TRIGGER tasks_keep_creator ON users;
DROP TRIGGER tasks_keep_group ON groups;
DROP FUNCTION refuse_to_orphan_tasks();
ALTER TABLE active_tasks
    ADD CONSTRAINT active_tasks_assignment_fk FOREIGN KEY (assignment_id) REFERENCES suite_assignments (id)
        ON DELETE RESTRICT;
ALTER TABLE task_attempts
    ADD CONSTRAINT task_attempts_runner_fk FOREIGN KEY (runner_id) REFERENCES runners (id) ON DELETE RESTRICT,
    ADD CONSTRAINT task_attempts_assignment_fk FOREIGN KEY (assignment_id) REFERENCES suite_assignments (id)
        ON DELETE RESTRICT;
ALTER TABLE archived_tasks
    ADD CONSTRAINT archived_tasks_group_fk FOREIGN KEY (group_id) REFERENCES groups (id) ON DELETE RESTRICT,
    ADD CONSTRAINT archived_tasks_creator_fk FOREIGN KEY (creator_id) REFERENCES users (id) ON DELETE RESTRICT,
    ADD CONSTRAINT archived_tasks_assignment_fk FOREIGN KEY (assignment_id) REFERENCES suite_assignments (id)
        ON DELETE RESTRICT;
