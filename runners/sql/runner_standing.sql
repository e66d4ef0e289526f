-- Which tokens of a runner count. By the unique index on uuid; called by runners.authentication.
SELECT id, token_generation
FROM runners
WHERE uuid = %(uuid)s AND kind = %(kind)s AND revoked_at IS NULL
