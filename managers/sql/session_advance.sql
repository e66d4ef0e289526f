-- Engagements follow what their managers say they do: Preparing (1) begins one, Executing (2) makes it ready for claims.
-- Never back, and never out of lingering or cleanup. The rows were locked in the statement before (session_due.sql).
-- By suite_assignments_one_live; called by managers.services.session_duty with the beats that were accepted.
UPDATE suite_assignments a
SET state = q.state,
    prepared_at = CASE WHEN q.state = 2 THEN coalesce(a.prepared_at, clock_timestamp()) ELSE a.prepared_at END
FROM unnest(%(manager_ids)s::bigint[], %(assignment_ids)s::bigint[], %(states)s::smallint[])
    AS q (manager_id, assignment_id, state)
WHERE a.manager_id = q.manager_id
    AND a.released_at IS NULL
    AND a.id = coalesce(q.assignment_id, a.id)
    AND a.state < q.state
    AND a.state < 2
RETURNING a.id
