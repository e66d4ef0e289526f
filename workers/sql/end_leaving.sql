-- The last step of a graceful shutdown: workers that were asked to leave and hold nothing are gone.
-- Chosen by fact, so whoever runs it (the request, the commit, the fetch, the sweep) may crash before it. Safe
-- against a claim: that needs desired_state 0, which was taken away in an earlier statement under the same row lock.
-- Relies on: runners_pkey, active_tasks_runner; without ids it reads the workers. Called by: workers.api, workers.periodic.
UPDATE runners r
SET revoked_at = clock_timestamp(),
    token_generation = r.token_generation + 1,
    session_epoch = r.session_epoch + 1,
    conn_state = 0,
    updated_at = clock_timestamp()
WHERE (%(runner_ids)s::bigint[] IS NULL OR r.id = ANY (%(runner_ids)s::bigint[]))
    AND r.kind IN (1, 2)
    AND r.desired_state = 3
    AND r.revoked_at IS NULL
    AND NOT EXISTS (SELECT FROM active_tasks t WHERE t.runner_id = r.id)
RETURNING r.id, r.uuid, r.kind
