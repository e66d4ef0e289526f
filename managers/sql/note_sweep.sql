-- A sweep ran just now. By the primary key; called by managers.services.sweeps.
INSERT INTO sweep_runs AS r (name, last_run_at)
VALUES (%(name)s, clock_timestamp())
ON CONFLICT (name) DO UPDATE
SET last_run_at = clock_timestamp()
