-- Whether a user may still look: active, and an operator or not. Relies on: users_pkey. Called by: console.live.streams.
SELECT u.state = 0, u.is_staff FROM users u WHERE u.id = %(user_id)s
