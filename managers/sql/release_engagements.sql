-- Locked engagements end; a reason that was given before stays. By the primary key; called by
-- managers.services.engagement.
UPDATE suite_assignments a
SET state = 5,
    released_at = clock_timestamp(),
    release_reason = coalesce(a.release_reason, %(reason)s::smallint)
WHERE a.id = ANY (%(ids)s::bigint[]) AND a.released_at IS NULL
RETURNING a.id
