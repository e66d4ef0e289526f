-- What the ORM cannot say about managers: immediate foreign keys (RESTRICT; eligibility goes with its suite), and
-- half-empty pages, so that heartbeats stay heap-only updates. Run by migration 0001. A shipped file is never edited.
ALTER TABLE task_suite_managers
    ADD CONSTRAINT task_suite_managers_suite_fk FOREIGN KEY (task_suite_id) REFERENCES task_suites (id) ON DELETE CASCADE,
    ADD CONSTRAINT task_suite_managers_manager_fk FOREIGN KEY (manager_id) REFERENCES node_managers (runner_id)
        ON DELETE RESTRICT;
ALTER TABLE suite_assignments
    ADD CONSTRAINT suite_assignments_suite_fk FOREIGN KEY (suite_id) REFERENCES task_suites (id) ON DELETE RESTRICT,
    ADD CONSTRAINT suite_assignments_manager_fk FOREIGN KEY (manager_id) REFERENCES node_managers (runner_id)
        ON DELETE RESTRICT;
ALTER TABLE preparation_failures
    ADD CONSTRAINT preparation_failures_suite_fk FOREIGN KEY (suite_id) REFERENCES task_suites (id) ON DELETE RESTRICT,
    ADD CONSTRAINT preparation_failures_manager_fk FOREIGN KEY (manager_id) REFERENCES node_managers (runner_id)
        ON DELETE RESTRICT;
ALTER TABLE node_managers SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500
);
ALTER TABLE suite_assignments SET (fillfactor = 70);
