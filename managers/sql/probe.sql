-- Managers of probe_due.sql work again, on probation: the next failure of theirs that succeeds elsewhere sends them back
-- for twice as long. Probations that went well end. By the primary keys; called by managers.services.quarantine.
WITH freed AS (
    UPDATE runners r SET desired_state = 0, updated_at = clock_timestamp()
    WHERE r.id = ANY (%(manager_ids)s::bigint[])
    RETURNING r.id
),
probing AS (
    UPDATE node_managers m
    SET probe_after = NULL,
        probation_until = clock_timestamp() + make_interval(secs => %(window_s)s),
        evidence_since = clock_timestamp(),
        wish_reason = 'on probation: ' || m.wish_reason,
        wish_at = clock_timestamp()
    FROM freed f
    WHERE m.runner_id = f.id
)
UPDATE node_managers m
SET probation_until = NULL, quarantine_count = 0, wish_reason = '', wish_at = clock_timestamp()
WHERE m.probation_until <= clock_timestamp() AND m.runner_id <> ALL (%(manager_ids)s::bigint[])
