-- Tasks point at suites and engagements: immediate RESTRICT foreign keys, so that no suite with a task can vanish and
-- turn its tasks into independent ones. Run by migration 0002. A shipped file is never edited.
ALTER TABLE active_tasks
    ADD CONSTRAINT active_tasks_suite_fk FOREIGN KEY (suite_id) REFERENCES task_suites (id) ON DELETE RESTRICT,
    ADD CONSTRAINT active_tasks_assignment_fk FOREIGN KEY (assignment_id) REFERENCES suite_assignments (id)
        ON DELETE RESTRICT;
ALTER TABLE archived_tasks
    ADD CONSTRAINT archived_tasks_suite_fk FOREIGN KEY (suite_id) REFERENCES task_suites (id) ON DELETE RESTRICT,
    ADD CONSTRAINT archived_tasks_assignment_fk FOREIGN KEY (assignment_id) REFERENCES suite_assignments (id)
        ON DELETE RESTRICT;
ALTER TABLE task_attempts
    ADD CONSTRAINT task_attempts_assignment_fk FOREIGN KEY (assignment_id) REFERENCES suite_assignments (id)
        ON DELETE RESTRICT;
ALTER TABLE suite_count_deltas
    ADD CONSTRAINT suite_count_deltas_suite_fk FOREIGN KEY (suite_id) REFERENCES task_suites (id) ON DELETE RESTRICT;
