-- Undoes 0002_worker_status.sql.
DROP VIEW worker_status;
