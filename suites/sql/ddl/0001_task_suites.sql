-- What the ORM cannot say about suites: immediate RESTRICT foreign keys, and room for heap-only updates (each submit
-- touches the row). Run by migration 0001. A shipped file is never edited; the next change is a new file.
ALTER TABLE task_suites
    ADD CONSTRAINT task_suites_group_fk FOREIGN KEY (group_id) REFERENCES groups (id) ON DELETE RESTRICT,
    ADD CONSTRAINT task_suites_creator_fk FOREIGN KEY (creator_id) REFERENCES users (id) ON DELETE RESTRICT;
ALTER TABLE task_suites SET (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500
);
