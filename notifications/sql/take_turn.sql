-- Takes the turn at a job for so long, unless somebody else has it. By job_turns_pkey; called by: notifications.services.turns.
INSERT INTO job_turns (name, until)
VALUES (%(name)s, clock_timestamp() + make_interval(secs => %(limit_s)s::float8))
ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE job_turns.until <= clock_timestamp()
RETURNING until
