-- A submit is about to add tasks: each suite opens (again), its clock restarts. The rows are locked and stay so until the
-- tasks are in. A suite missing in the answer is absent or may not open. By the primary key; called by
-- suites.services.lifecycle.
UPDATE task_suites s
SET state = 0,
    generation = s.generation + (s.state <> 0)::int,
    submit_count = s.submit_count + 1,
    last_task_submitted_at = clock_timestamp(),
    closed_at = NULL,
    completed_at = NULL,
    updated_at = clock_timestamp()
WHERE s.id = ANY (%(suite_ids)s::bigint[]) AND s.state = ANY (%(sources)s::smallint[])
RETURNING s.id, s.generation
