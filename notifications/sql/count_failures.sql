-- Reads the event log on from where the last run ended and adds the failed tasks of suites to their minutes: one statement,
-- so an event is counted once whatever dies. Stops before the oldest running transaction, as every reader of the log.
-- By task_events_pkey; called by: notifications.services.bursts.
WITH stretch AS MATERIALIZED (
    SELECT e.xid, e.id, e.at, e.kind, e.outcome, e.suite_id
    FROM task_events e
    WHERE (e.xid, e.id) > (%(xid)s::text::xid8, %(id)s::bigint)
        AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY e.xid, e.id
    LIMIT %(max_events)s::int
),
counted AS (
    INSERT INTO failure_minutes (suite_id, minute, failed)
    SELECT s.suite_id, date_trunc('minute', s.at), count(*)
    FROM stretch s
    WHERE s.kind = 8 AND s.outcome IN (1, 2, 3) AND s.suite_id IS NOT NULL
    GROUP BY 1, 2
    ON CONFLICT (suite_id, minute) DO UPDATE SET failed = failure_minutes.failed + excluded.failed
),
moved AS (
    UPDATE log_positions p
    SET xid = last.xid::text, event_id = last.id
    FROM (SELECT s.xid, s.id FROM stretch s ORDER BY s.xid DESC, s.id DESC LIMIT 1) last
    WHERE p.reader = 'bursts'
)
SELECT count(*)::int FROM stretch
