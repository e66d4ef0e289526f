-- Whether open sockets may stay open. By runners_pkey; called by managers.services.session_duty every second or two.
SELECT id, session_epoch, token_generation, revoked_at IS NOT NULL, conn_state, process_id
FROM runners
WHERE id = ANY (%(manager_ids)s::bigint[])
