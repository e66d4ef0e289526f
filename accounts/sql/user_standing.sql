-- Which tokens of a user count. By the unique index on username; called by accounts.authentication.
SELECT id, token_generation, state FROM users WHERE username = %(username)s
