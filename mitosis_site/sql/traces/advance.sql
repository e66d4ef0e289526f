-- Moves the reader of traces on, unless another one has: what was sent twice has the same ids. By log_positions_pkey.
-- Called by: mitosis_site.tracing.export.
UPDATE log_positions
SET xid = %(xid)s, event_id = %(id)s
WHERE reader = 'traces' AND xid = %(old_xid)s AND event_id = %(old_id)s
