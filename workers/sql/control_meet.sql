-- Who a direct worker is to the control plane: its one group, and whether that group lets it work. By runners_pkey,
-- workers_pkey, groups_pkey and group_runners_unique; called by workers.services.control_plane at every connect.
SELECT g.id, g.name, coalesce(gr.consent = 1 AND gr.role >= 1, false), g.drain_mem_pct, g.drain_disk_pct
FROM workers w
JOIN groups g ON g.id = w.tenant_id
LEFT JOIN group_runners gr ON gr.group_id = g.id AND gr.runner_id = w.runner_id
WHERE w.runner_id = %(runner_id)s
