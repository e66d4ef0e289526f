-- Undoes 0004_lost.sql.
DROP INDEX active_tasks_lost;
