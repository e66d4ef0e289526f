-- Change a task that waits: null parameters leave their column alone. Only Ready; a lost attempt is fenced, because
-- it ran the old task. Relies on: active_tasks_uuid_key. Called by: tasks.store.change.
WITH changed AS (
    UPDATE active_tasks t
    SET tags = coalesce(%(tags)s::text[], t.tags),
        lane = coalesce(%(lane)s::bigint, t.lane),
        timeout_s = coalesce(%(timeout_s)s::int, t.timeout_s),
        priority = coalesce(%(priority)s::int, t.priority),
        spec = coalesce(%(spec)s::jsonb, t.spec),
        lost_runner_id = NULL,
        lost_charge = 0,
        event_seq = t.event_seq + 1,
        updated_at = clock_timestamp()
    WHERE t.uuid = %(uuid)s::uuid AND t.state = 1
    RETURNING t.id, t.group_id, t.suite_id, t.attempt, t.event_seq, t.state
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, suite_id, task_id)
    SELECT 10, c.state, c.event_seq, c.attempt, c.group_id, c.suite_id, c.id
    FROM changed c
)
SELECT c.id FROM changed c
