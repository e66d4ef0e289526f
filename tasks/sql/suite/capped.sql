-- How many suites of these engagements bound what runs at once: without one, a claim needs no turn and no transaction.
-- A bound set after this look counts from the next claim on, as one set between suite/cap.sql and the claim does.
-- Relies on: suite_assignments_pkey. Called by: tasks.services.manager_claims.
SELECT count(*)::int
FROM suite_assignments a
JOIN task_suites s ON s.id = a.suite_id
WHERE a.id = ANY (%(assignment_ids)s::bigint[]) AND s.max_running IS NOT NULL
