-- Undoes 0009_attempt_room.sql.
ALTER TABLE task_attempts SET (fillfactor = 85);
