-- Foreign keys whose check the writing statement has already done, row by row and for the same few parents: a task that
-- ends takes group, creator and engagement over from the row it leaves, a claim and an adoption hold runner and engagement
-- locked. They cost a seventh of a task's life in the database. What they forbade stays forbidden: no parent goes while
-- a task points at it. Keys towards suites, and those of rows that users submit, stay as they are. See ADR 0019.
-- Run by migration 0008. A shipped file is never edited.
ALTER TABLE archived_tasks
    DROP CONSTRAINT archived_tasks_group_fk,
    DROP CONSTRAINT archived_tasks_creator_fk,
    DROP CONSTRAINT archived_tasks_assignment_fk;
ALTER TABLE task_attempts
    DROP CONSTRAINT task_attempts_runner_fk,
    DROP CONSTRAINT task_attempts_assignment_fk;
ALTER TABLE active_tasks DROP CONSTRAINT active_tasks_assignment_fk;

-- After the row is gone for us: nobody can begin to point at it any more, and each query below has a snapshot of its own.
-- A task moves from active_tasks to archived_tasks and never back, so whoever looks in this order cannot miss it.
CREATE FUNCTION refuse_to_orphan_tasks() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    is_needed boolean := false;
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.id = OLD.id THEN
        RETURN NULL;
    END IF;
    IF TG_TABLE_NAME = 'groups' THEN
        is_needed := EXISTS (SELECT FROM archived_tasks t WHERE t.group_id = OLD.id);
    ELSIF TG_TABLE_NAME = 'users' THEN
        is_needed := EXISTS (SELECT FROM archived_tasks t WHERE t.creator_id = OLD.id);
    ELSIF TG_TABLE_NAME = 'runners' THEN
        is_needed := EXISTS (SELECT FROM task_attempts a WHERE a.runner_id = OLD.id);
    ELSE
        is_needed := EXISTS (SELECT FROM active_tasks t WHERE t.assignment_id = OLD.id);
        is_needed := is_needed OR EXISTS (SELECT FROM archived_tasks t WHERE t.assignment_id = OLD.id);
        is_needed := is_needed OR EXISTS (SELECT FROM task_attempts a WHERE a.assignment_id = OLD.id);
    END IF;
    IF is_needed THEN
        RAISE EXCEPTION 'row % of % is still pointed at by tasks', OLD.id, TG_TABLE_NAME
            USING ERRCODE = 'foreign_key_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tasks_keep_group AFTER DELETE OR UPDATE OF id ON groups
    FOR EACH ROW EXECUTE FUNCTION refuse_to_orphan_tasks();
CREATE TRIGGER tasks_keep_creator AFTER DELETE OR UPDATE OF id ON users
    FOR EACH ROW EXECUTE FUNCTION refuse_to_orphan_tasks();
CREATE TRIGGER tasks_keep_runner AFTER DELETE OR UPDATE OF id ON runners
    FOR EACH ROW EXECUTE FUNCTION refuse_to_orphan_tasks();
CREATE TRIGGER tasks_keep_assignment AFTER DELETE OR UPDATE OF id ON suite_assignments
    FOR EACH ROW EXECUTE FUNCTION refuse_to_orphan_tasks();
