-- Suites that are about to change, in id order, so two batches over the same suites cannot deadlock. A statement of its own:
-- one that locks a row and updates it in the same breath starts the update at the version its snapshot saw, and
-- deadlocks with a session that waits for that row (found by tests/integration/suites/test_suite_races.py).
-- By the primary key; called by suites.services.lifecycle.
SELECT s.id FROM task_suites s WHERE s.id = ANY (%(suite_ids)s::bigint[]) ORDER BY s.id FOR NO KEY UPDATE OF s
