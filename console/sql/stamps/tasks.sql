-- One line per watched task that differs whenever something on its page does: every step of a task counts its event_seq up.
-- Relies on: active_tasks_uuid_key, archived_tasks_uuid_key. Called by: console.selectors.stamps.
SELECT t.uuid::text, concat_ws(',', 'active', t.state, t.attempt, t.event_seq, t.failures, t.updated_at)
FROM active_tasks t
WHERE t.uuid = ANY (%(uuids)s::uuid[])
UNION ALL
SELECT t.uuid::text, concat_ws(',', 'ended', t.updated_at, t.event_seq)
FROM archived_tasks t
WHERE t.uuid = ANY (%(uuids)s::uuid[])
