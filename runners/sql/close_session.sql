-- A socket is gone. Reclaims nothing: the lease decides. Only the session that still owns the runner
-- may say so, or the late close of an old socket would take the new one offline.
UPDATE runners
SET conn_state = 0, updated_at = clock_timestamp()
WHERE id = %(runner_id)s AND session_epoch = %(session_epoch)s AND conn_state = 1
