-- The rest of a scheduler pass, one statement: leases renewed, idle times, lingering, leaving. An engagement that nobody
-- has begun is over at once; the others clean up first. The rows are locked. By the primary key; called by
-- managers.services.scheduler.
UPDATE suite_assignments a
SET state = CASE WHEN w.reason IS NULL THEN coalesce(w.state, a.state) WHEN a.state = 0 THEN 5 ELSE 4 END,
    lease_expires_at = CASE WHEN w.renew THEN clock_timestamp() + make_interval(secs => %(lease_s)s) ELSE a.lease_expires_at END,
    renewals = a.renewals + w.renew::int,
    idle_since = CASE w.idle WHEN 1 THEN coalesce(a.idle_since, clock_timestamp()) WHEN 0 THEN NULL ELSE a.idle_since END,
    release_reason = coalesce(w.reason, a.release_reason),
    release_asked_at = CASE WHEN w.reason IS NULL THEN a.release_asked_at ELSE clock_timestamp() END,
    released_at = CASE WHEN w.reason IS NOT NULL AND a.state = 0 THEN clock_timestamp() END
FROM unnest(
    %(ids)s::bigint[], %(renew)s::bool[], %(states)s::smallint[], %(idle)s::smallint[], %(reasons)s::smallint[]
) AS w (id, renew, state, idle, reason)
-- What the manager reported since the picture was taken wins: only rows that are not leaving, and no way back in time.
WHERE a.id = w.id AND a.state < 4 AND (w.state IS NULL OR a.state IN (2, 3))
RETURNING a.id
