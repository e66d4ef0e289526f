-- Nobody wants what this reader makes of the log: its position follows the log without reading it. Also makes a position
-- where there is none: a reader begins with what happens from now on. By log_positions_pkey.
-- Called by: notifications.services.positions.
INSERT INTO log_positions (reader, xid, event_id)
VALUES (%(reader)s, pg_snapshot_xmin(pg_current_snapshot())::text, 0)
ON CONFLICT (reader) DO UPDATE SET xid = excluded.xid, event_id = 0
WHERE %(is_skipping)s
