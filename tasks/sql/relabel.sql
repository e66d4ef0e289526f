-- Replace the labels of a task wherever it is. Waits for the row: the answer must be yes or no.
-- Relies on: active_tasks_uuid_key, archived_tasks_uuid_key. Called by: tasks.store.relabel.
WITH active AS (
    UPDATE active_tasks t
    SET labels = %(labels)s::text[], event_seq = t.event_seq + 1, updated_at = clock_timestamp()
    WHERE t.uuid = %(uuid)s::uuid
    RETURNING t.id, t.group_id, t.suite_id, t.attempt, t.event_seq, t.state
),
archived AS (
    UPDATE archived_tasks t
    SET labels = %(labels)s::text[], event_seq = t.event_seq + 1, updated_at = clock_timestamp()
    WHERE t.uuid = %(uuid)s::uuid
    RETURNING t.id, t.group_id, t.suite_id, t.attempt, t.event_seq, NULL::smallint AS state
),
either AS (SELECT * FROM active UNION ALL SELECT * FROM archived),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id)
    SELECT 10, e.state, e.event_seq, e.attempt, e.group_id, e.suite_id, e.id
    FROM either e
)
SELECT e.id FROM either e
