-- Claim, part 1 of 2: who asks, for managers. Followed by claim/tail.sql.
-- A manager reaches the queue of the suite it is engaged with, once its host is prepared, while the suite hands out tasks
-- and its group has Write or Admin on the manager. `max_running` bounds what all its managers hold together; the caller
-- took suite/cap.sql in the statement before, so nobody else counts at the same time.
-- Relies on: suite_assignments_pkey, runners_pkey, runner_leases_pkey, group_runners_unique, active_tasks_suite.
-- Called by: tasks.services.suite_claim.
WITH RECURSIVE
asked AS MATERIALIZED (
    SELECT q.runner_id, q.session_epoch, q.claim_id, false AS is_exclusive, q.assignment_id, q.ord,
        -- 0 and not "again" where asking again would not help.
        -- What others of this batch asked of the same suite before counts as held.
        CASE
            WHEN s.id IS NULL THEN 0
            WHEN s.max_running IS NULL THEN q.want
            ELSE greatest(0, least(q.want, s.max_running - n.held - coalesce(sum(q.want) OVER earlier, 0)))
        END::int AS want
    FROM unnest(
        %(runner_ids)s::bigint[], %(session_epochs)s::bigint[], %(claim_ids)s::uuid[], %(wants)s::int[],
        %(assignment_ids)s::bigint[]
    ) WITH ORDINALITY AS q (runner_id, session_epoch, claim_id, want, assignment_id, ord)
    LEFT JOIN suite_assignments a
        ON a.id = q.assignment_id AND a.manager_id = q.runner_id AND a.state IN (2, 3)
    LEFT JOIN task_suites s
        ON s.id = a.suite_id AND s.state IN (0, 1) AND s.paused_at IS NULL AND s.blocked_at IS NULL
        AND EXISTS (
            SELECT FROM group_runners gr
            WHERE gr.group_id = s.group_id AND gr.runner_id = q.runner_id AND gr.role >= 1 AND gr.consent = 1
        )
    LEFT JOIN LATERAL (
        SELECT count(*) AS held
        FROM active_tasks t
        WHERE s.max_running IS NOT NULL AND t.suite_id = s.id AND t.runner_id IS NOT NULL
    ) n ON true
    WINDOW earlier AS (PARTITION BY s.id ORDER BY q.ord ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
-- FOR SHARE keeps a reap, a takeover or a release from fencing the engagement between this check and the claim.
guard AS MATERIALIZED (
    SELECT q.ord, q.runner_id, r.session_epoch, q.claim_id, q.is_exclusive, r.tags, NULL::text[] AS node_tags,
        greatest(q.want, 0) AS want, a.id AS assignment_id, ARRAY[-a.suite_id] AS queue_ids
    FROM asked q
    JOIN runners r ON r.id = q.runner_id
    JOIN runner_leases l ON l.runner_id = q.runner_id
    JOIN suite_assignments a ON a.id = q.assignment_id AND a.manager_id = q.runner_id
    WHERE r.revoked_at IS NULL
        AND r.desired_state = 0
        AND r.session_epoch = coalesce(q.session_epoch, r.session_epoch)
        AND l.expires_at > clock_timestamp()
        AND a.released_at IS NULL
        AND a.state IN (2, 3)
    ORDER BY r.id
    FOR SHARE OF r, a SKIP LOCKED
),
