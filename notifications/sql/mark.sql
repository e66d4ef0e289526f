-- What became of one try. Only the newest try of a delivery may say so: a late answer of an older one must not undo it,
-- except that a receiver which took it has taken it. By webhook_deliveries_pkey; called by: notifications.services.sending.
UPDATE webhook_deliveries d
SET state = CASE WHEN %(is_delivered)s THEN 1 WHEN d.tries >= %(max_tries)s::int THEN 2 ELSE 0 END,
    last_status = %(status)s::int,
    last_error = %(error)s::text,
    delivered_at = CASE WHEN %(is_delivered)s THEN clock_timestamp() END
WHERE d.id = %(id)s::bigint AND d.state = 0 AND (d.tries = %(tries)s::int OR %(is_delivered)s)
