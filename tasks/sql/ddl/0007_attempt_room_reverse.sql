-- Undoes 0007_attempt_room.sql.
ALTER TABLE task_attempts SET (fillfactor = 85);
