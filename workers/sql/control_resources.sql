-- Resources that are on a worker now, by its own word. By worker_resources_one; called by workers.services.control_plane.
INSERT INTO worker_resources (
    runner_id, resource_id, type, scope, size_bytes, expires_at, metadata, task_uuid, created_at
)
SELECT %(runner_id)s, n.resource_id, n.type, n.scope, n.size_bytes, n.expires_at, coalesce(n.metadata, '{}'::jsonb),
    %(task_uuid)s::uuid, clock_timestamp()
FROM (
    SELECT DISTINCT ON (resource_id) *
    FROM jsonb_to_recordset(%(resources)s::jsonb) AS (
        resource_id text, type text, scope text, size_bytes bigint, expires_at timestamptz, metadata jsonb
    )
) n
ORDER BY n.resource_id
ON CONFLICT (runner_id, resource_id) DO UPDATE
SET type = excluded.type, scope = excluded.scope, size_bytes = excluded.size_bytes, expires_at = excluded.expires_at,
    metadata = excluded.metadata, task_uuid = excluded.task_uuid
