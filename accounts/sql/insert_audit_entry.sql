-- One audit entry. Called by accounts.services.audit, in the caller's transaction or through the pool.
INSERT INTO audit_log (actor_kind, actor_id, action, object, outcome, ip, request_id, detail)
VALUES (
    %(actor_kind)s, %(actor_id)s, %(action)s, %(object)s, %(outcome)s, %(ip)s, %(request_id)s,
    %(detail)s::jsonb
)
