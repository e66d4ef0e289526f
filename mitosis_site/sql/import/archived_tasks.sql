-- Tasks that ended on the existing server. A number that a group of the same name has given out here before moves
-- behind all numbers of both. Ids come from the queue's sequence, as those of all tasks do.
-- Relies on: active_tasks_uuid_key, archived_tasks_uuid_key. Called by: mitosis_site.importing.run.
WITH inserted AS (
    INSERT INTO archived_tasks (
        id, uuid, group_id, creator_id, number, priority, tags, labels, timeout_s, spec, state, outcome, exit_status,
        msg, reason, reporter_uuid, upstream_task_uuid, downstream_task_uuid, created_at, updated_at, ended_at
    )
    SELECT nextval('active_tasks_id_seq'), r.uuid, g.id, u.id,
        CASE WHEN r.number > g.task_count THEN r.number ELSE r.number + greatest(g.task_count, r.source_count) END,
        r.priority, r.tags, r.labels, r.timeout_s, r.spec, r.state, r.outcome, r.exit_status, r.msg, r.reason,
        r.reporter_uuid, r.upstream_task_uuid, r.downstream_task_uuid, r.created_at, r.updated_at, r.updated_at
    FROM ROWS FROM (
        jsonb_to_recordset(%(rows)s::jsonb) AS (
            uuid uuid, group_name text, creator text, number bigint, source_count bigint, priority int, tags text[],
            labels text[], timeout_s int, spec jsonb, state smallint, outcome smallint, exit_status int, msg smallint,
            reason text, reporter_uuid uuid, upstream_task_uuid uuid, downstream_task_uuid uuid,
            created_at timestamptz, updated_at timestamptz
        )
    ) WITH ORDINALITY AS r
    JOIN groups g ON g.name = r.group_name
    JOIN users u ON u.username = r.creator
    WHERE NOT EXISTS (SELECT FROM active_tasks t WHERE t.uuid = r.uuid)
        AND NOT EXISTS (SELECT FROM archived_tasks t WHERE t.uuid = r.uuid)
    ORDER BY r.ordinality
    RETURNING id
)
SELECT count(*)::int FROM inserted
