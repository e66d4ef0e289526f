-- Undoes 0003_excluded.sql.
DROP INDEX active_tasks_excluded;
