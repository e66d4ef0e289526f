-- Engagements that are about to change, in id order, by id or of whole managers. A statement of its own: see
-- suites/sql/lock.sql. By the primary key and suite_assignments_one_live; called by managers.services.engagement and
-- managers.services.scheduler.
SELECT a.id
FROM suite_assignments a
WHERE a.released_at IS NULL
    AND (%(ids)s::bigint[] IS NULL OR a.id = ANY (%(ids)s::bigint[]))
    AND (%(manager_ids)s::bigint[] IS NULL OR a.manager_id = ANY (%(manager_ids)s::bigint[]))
ORDER BY a.id
FOR NO KEY UPDATE OF a
