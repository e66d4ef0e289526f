-- Tasks that some manager has given up: few, so the index is small and claims do not pay for it.
CREATE INDEX active_tasks_excluded ON active_tasks (id) WHERE is_ready AND excluded_runner_ids <> '{}';
