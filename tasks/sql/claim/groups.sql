-- Claim, part 1 of 2: who asks, for independent and direct workers. Followed by claim/tail.sql.
-- A worker reaches the queues of the groups that have Write or Admin on it, once their side consented; a direct worker
-- that of its tenant alone. Its node types are tags beside its own, and only it may take tasks that need them.
-- Relies on: runners_pkey, runner_leases_pkey, workers_pkey, the index of group_runners.runner_id. Called by:
-- tasks.store.claim.
WITH RECURSIVE
asked AS MATERIALIZED (
    SELECT *
    FROM unnest(
        %(runner_ids)s::bigint[], %(session_epochs)s::bigint[], %(claim_ids)s::uuid[],
        %(wants)s::int[], %(exclusive)s::bool[]
    ) WITH ORDINALITY AS q (runner_id, session_epoch, claim_id, want, is_exclusive, ord)
),
-- FOR SHARE keeps a reap or a takeover from fencing the session between this check and the claim.
guard AS MATERIALIZED (
    SELECT q.ord, q.runner_id, r.session_epoch, q.claim_id, q.is_exclusive,
        CASE WHEN w.tenant_id IS NULL THEN r.tags ELSE r.tags || w.node_tags END AS tags,
        CASE WHEN w.tenant_id IS NOT NULL THEN w.node_tags END AS node_tags,
        CASE WHEN q.is_exclusive THEN least(q.want, 1) ELSE q.want END AS want,
        NULL::bigint AS assignment_id,
        ARRAY(
            SELECT gr.group_id
            FROM group_runners gr
            WHERE gr.runner_id = q.runner_id AND gr.role >= 1 AND gr.consent = 1
                AND gr.group_id = coalesce(w.tenant_id, gr.group_id)
        ) AS queue_ids
    FROM asked q
    JOIN runners r ON r.id = q.runner_id
    JOIN runner_leases l ON l.runner_id = q.runner_id
    LEFT JOIN workers w ON w.runner_id = q.runner_id
    WHERE r.revoked_at IS NULL
        AND r.desired_state = 0
        AND r.session_epoch = coalesce(q.session_epoch, r.session_epoch)
        AND l.expires_at > clock_timestamp()
    ORDER BY r.id
    FOR SHARE OF r SKIP LOCKED
),
