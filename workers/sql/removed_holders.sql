-- Workers that were removed and still hold a task; null ids look at all of them.
-- Relies on: active_tasks_runner, which holds only what is leased now. Called by: workers.services.departure.
SELECT DISTINCT r.id
FROM active_tasks t
JOIN runners r ON r.id = t.runner_id
WHERE t.runner_id IS NOT NULL
    AND (%(runner_ids)s::bigint[] IS NULL OR t.runner_id = ANY (%(runner_ids)s::bigint[]))
    AND r.revoked_at IS NOT NULL
    AND r.kind IN (1, 2)
ORDER BY r.id
