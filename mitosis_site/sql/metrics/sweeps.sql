-- How long ago each periodic job ran. A handful of rows. Called by: mitosis_site.metrics.queue.
SELECT s.name, extract(epoch FROM clock_timestamp() - s.last_run_at)::float8 FROM sweep_runs s ORDER BY s.name
