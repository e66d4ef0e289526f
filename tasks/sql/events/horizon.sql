-- Where a new reader starts, and the first xid that does not exist yet: a cursor beyond it comes from another
-- database (a restored dump) and must be refused, or its reader would wait for ever.
-- Relies on: nothing. Called by: tasks.store.event_horizon.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS safe_xid, pg_snapshot_xmax(pg_current_snapshot())::text AS next_xid
