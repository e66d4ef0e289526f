-- Undoes 0001_tasks.sql; the other tables go with their models.
DROP TABLE task_events;
