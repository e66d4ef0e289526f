-- Take turns where `max_running` counts: one claim at a time per such suite, until the transaction ends. In id order.
-- Relies on: suite_assignments_pkey. Called by: tasks.services.suite_claim, in the statement before suite/claim.sql.
SELECT count(pg_advisory_xact_lock(hashtextextended('suite.cap/' || c.id, 1)))::int
FROM (
    SELECT DISTINCT s.id
    FROM suite_assignments a
    JOIN task_suites s ON s.id = a.suite_id
    WHERE a.id = ANY (%(assignment_ids)s::bigint[]) AND s.max_running IS NOT NULL
    ORDER BY s.id
) c
