-- The live engagement of each manager, 0 without one. Relies on: suite_assignments_one_live. Called by:
-- tasks.services.manager_claims, for clients that do not name theirs.
SELECT q.ord::int, coalesce(a.id, 0)::bigint
FROM unnest(%(runner_ids)s::bigint[]) WITH ORDINALITY AS q (runner_id, ord)
LEFT JOIN suite_assignments a ON a.manager_id = q.runner_id AND a.released_at IS NULL
ORDER BY q.ord
