-- Events of one suite after the cursor (xid, id), up to the oldest transaction still running. Ids alone would not do:
-- they are drawn before the commit, so a slow transaction makes a smaller id appear after a larger one was read.
-- Every transaction below the snapshot's xmin has ended, so nothing can appear below that line any more.
-- Relies on: task_events_suite. Called by: tasks.store.events_of_suite.
SELECT e.id, e.xid::text AS xid, e.at, e.kind, e.state, e.outcome, e.seq, e.attempt, e.group_id, e.suite_id, e.task_id,
    e.runner_id, e.data::text
FROM task_events e
WHERE e.suite_id = %(suite_id)s::bigint
    AND (e.xid, e.id) > (%(xid)s::text::xid8, %(id)s::bigint)
    AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
ORDER BY e.xid, e.id
LIMIT %(max_events)s::int
