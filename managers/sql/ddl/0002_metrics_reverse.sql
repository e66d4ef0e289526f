-- Undoes 0002_metrics.sql.
DROP TABLE manager_hours_done;
DROP TABLE manager_hours;
DROP TABLE manager_samples;
