-- The suites of find/idle.sql close. They are locked, and PostgreSQL has checked their columns on the newest version.
UPDATE task_suites s
SET state = 1, closed_at = clock_timestamp(), updated_at = clock_timestamp()
WHERE s.id = ANY (%(suite_ids)s::bigint[])
RETURNING s.id
