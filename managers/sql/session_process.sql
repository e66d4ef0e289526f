-- Which process speaks in the present session. By runners_pkey; called by managers.services.session_duty after `hello`.
UPDATE runners
SET process_id = %(process_id)s, updated_at = clock_timestamp()
WHERE id = %(manager_id)s AND session_epoch = %(session_epoch)s AND revoked_at IS NULL
