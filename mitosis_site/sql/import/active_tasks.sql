-- Tasks that still have to end, in the order of the existing server, with their first event. Numbers as in
-- archived_tasks.sql; the edges of waiting ones follow in edges.sql.
-- Relies on: active_tasks_uuid_key, archived_tasks_uuid_key. Called by: mitosis_site.importing.run.
WITH inserted AS (
    INSERT INTO active_tasks (
        uuid, group_id, creator_id, number, priority, tags, labels, lane, timeout_s, spec, state, waiting_on,
        upstream_task_uuid, downstream_task_uuid, created_at, updated_at
    )
    SELECT r.uuid, g.id, u.id,
        CASE WHEN r.number > g.task_count THEN r.number ELSE r.number + greatest(g.task_count, r.source_count) END,
        r.priority, r.tags, r.labels, r.lane, r.timeout_s, r.spec, r.phase, r.waiting_on, r.upstream_task_uuid,
        r.downstream_task_uuid, r.created_at, r.updated_at
    FROM ROWS FROM (
        jsonb_to_recordset(%(rows)s::jsonb) AS (
            uuid uuid, group_name text, creator text, number bigint, source_count bigint, priority int, tags text[],
            labels text[], lane bigint, timeout_s int, spec jsonb, phase smallint, waiting_on int,
            upstream_task_uuid uuid, downstream_task_uuid uuid, created_at timestamptz, updated_at timestamptz
        )
    ) WITH ORDINALITY AS r
    JOIN groups g ON g.name = r.group_name
    JOIN users u ON u.username = r.creator
    WHERE NOT EXISTS (SELECT FROM active_tasks t WHERE t.uuid = r.uuid)
        AND NOT EXISTS (SELECT FROM archived_tasks t WHERE t.uuid = r.uuid)
    ORDER BY r.ordinality
    RETURNING id, group_id, state
),
logged AS (
    INSERT INTO task_events (kind, state, seq, attempt, group_id, task_id)
    SELECT 0, i.state, 1, 0, i.group_id, i.id FROM inserted i ORDER BY i.id
)
SELECT count(*)::int FROM inserted
