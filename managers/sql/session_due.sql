-- Engagements that are behind what their managers say they do, locked in id order, as everybody does who locks several.
-- A statement of its own: see suites/sql/lock.sql. Usually none, for a manager says the same every 30 s.
-- By suite_assignments_one_live; called by managers.services.session_duty, before session_advance.sql.
SELECT a.id
FROM unnest(%(manager_ids)s::bigint[], %(assignment_ids)s::bigint[], %(states)s::smallint[])
    AS q (manager_id, assignment_id, state)
JOIN suite_assignments a ON a.manager_id = q.manager_id AND a.released_at IS NULL
WHERE a.id = coalesce(q.assignment_id, a.id) AND a.state < q.state AND a.state < 2
ORDER BY a.id
FOR NO KEY UPDATE OF a
