-- What people decided about eligibility, what a refresh stored for suites that do not match by themselves, and where a
-- preparation failed. By task_suite_managers_by_hand and preparation_failures_open; called by managers.services.snapshot.
SELECT CASE WHEN e.removed_at IS NOT NULL THEN 'removed' ELSE 'chosen' END, e.task_suite_id, e.manager_id
FROM task_suite_managers e
WHERE e.task_suite_id = ANY (%(suite_ids)s::bigint[]) AND (e.selection_type = 0 OR e.removed_at IS NOT NULL)
UNION ALL
SELECT 'matched', e.task_suite_id, e.manager_id
FROM task_suite_managers e
WHERE e.task_suite_id = ANY (%(manual_ids)s::bigint[]) AND e.selection_type = 1 AND e.removed_at IS NULL
UNION ALL
SELECT 'banned', p.suite_id, p.manager_id
FROM preparation_failures p
WHERE p.suite_id = ANY (%(suite_ids)s::bigint[]) AND p.forgiven_at IS NULL
