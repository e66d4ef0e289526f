-- Takes deliveries that are due, a few per webhook, and plans their next try before anybody sends them: whoever dies
-- between the request and its note leaves a row that comes back by itself. The last try is planned too; mark.sql or
-- give_up.sql ends it. By webhook_deliveries_due; called by: notifications.services.sending.
WITH due AS MATERIALIZED (
    SELECT d.id, d.webhook_id, d.next_try_at
    FROM webhook_deliveries d
    WHERE d.state = 0 AND d.next_try_at <= clock_timestamp()
    ORDER BY d.next_try_at
    LIMIT 1000
),
fair AS MATERIALIZED (
    SELECT f.id
    FROM (
        SELECT d.id, d.next_try_at, row_number() OVER (PARTITION BY d.webhook_id ORDER BY d.next_try_at, d.id) AS place
        FROM due d
    ) f
    WHERE f.place <= %(per_webhook)s::int
    ORDER BY f.next_try_at, f.id
    LIMIT %(batch)s::int
),
mine AS MATERIALIZED (
    SELECT d.id
    FROM webhook_deliveries d
    WHERE d.id = ANY (ARRAY(SELECT f.id FROM fair f)) AND d.state = 0 AND d.next_try_at <= clock_timestamp()
    FOR UPDATE SKIP LOCKED
)
UPDATE webhook_deliveries d
SET tries = d.tries + 1,
    last_try_at = clock_timestamp(),
    next_try_at = clock_timestamp() + make_interval(
        secs => least(%(backoff_s)s::float8 * 2 ^ least(d.tries, 20), %(backoff_max_s)s::float8) * (0.9 + 0.2 * random())
    )
FROM webhooks w
WHERE d.id = ANY (ARRAY(SELECT m.id FROM mine m)) AND w.id = d.webhook_id
RETURNING d.id, d.uuid, d.kind, d.data::text, d.created_at, d.tries, w.uuid, w.url, w.secret_version, w.is_enabled
