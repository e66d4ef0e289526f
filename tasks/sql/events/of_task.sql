-- The story of one task after `seq`. Safe to follow: every event is written under the task's row lock, so seq
-- order is commit order and no smaller seq can appear later. Relies on: task_events_task.
-- Called by: tasks.store.events_of_task.
SELECT e.id, e.xid::text AS xid, e.at, e.kind, e.state, e.outcome, e.seq, e.attempt, e.group_id, e.suite_id, e.task_id,
    e.runner_id, e.data::text
FROM task_events e
WHERE e.task_id = %(task_id)s::bigint AND e.seq > %(after_seq)s::int
ORDER BY e.seq
LIMIT %(max_events)s::int
