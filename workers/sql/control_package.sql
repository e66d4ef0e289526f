-- A package that is on a worker now, or not any more, as its newest session says; an older session changes nothing. By
-- workers_pkey; called by workers.services.control_plane. The list has the bound of a register.
UPDATE workers w
SET capabilities = jsonb_set(
    coalesce(w.capabilities, '{}'::jsonb),
    '{packages}',
    (
        SELECT coalesce(jsonb_agg(p.package ORDER BY p.place), '[]'::jsonb)
        FROM (
            SELECT e.package, e.place
            FROM jsonb_array_elements(w.capabilities -> 'packages') WITH ORDINALITY AS e (package, place)
            WHERE NOT (e.package ->> 'name' = %(name)s AND e.package ->> 'version' = %(version)s)
            UNION ALL
            SELECT a.package::jsonb, 0
            FROM (VALUES (%(installed)s::text)) AS a (package)
            WHERE a.package IS NOT NULL
            ORDER BY place
            LIMIT %(most)s
        ) p
    )
)
FROM runners r
WHERE w.runner_id = %(runner_id)s
    AND r.id = w.runner_id
    AND r.session_epoch = %(session_epoch)s
    AND r.revoked_at IS NULL
