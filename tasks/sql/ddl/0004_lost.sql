-- Tasks whose runner was lost and may come back: few, and found by the runner that returns or is removed.
-- Only a loss, its end and the claim after it change the column, so Start and Finish stay heap-only updates.
CREATE INDEX active_tasks_lost ON active_tasks (lost_runner_id) WHERE lost_runner_id IS NOT NULL;
