"""PostgreSQL for Django's ORM; the hot path's asynchronous pool reads the same address.

Every session carries server-side limits, so a forgotten lock or a runaway statement ends by
itself. Behind a pooler in transaction mode a session belongs to nobody: the pooler sets the limits
(docker/pgbouncer/pgbouncer.ini), and nothing of ours may live longer than a transaction.
"""

from typing import Any

from mitosis_site.env import ENV
from mitosis_site.settings.numbers import MITOSIS

DATABASE_URL = ENV.database.url
DATABASE_IS_POOLED = ENV.database_pooling == "transaction"

_limits = {
    "lock_timeout": MITOSIS.lock_timeout_s,
    "statement_timeout": MITOSIS.statement_timeout_s,
    "idle_in_transaction_session_timeout": MITOSIS.idle_in_transaction_s,
}
# Startup options, not SET statements: they cost no round trip and survive a reset of the session.
PG_SESSION_OPTIONS = (
    ""
    if DATABASE_IS_POOLED
    else " ".join(f"-c {name}={int(s * 1000)}" for name, s in _limits.items())
)
_options = f"{PG_SESSION_OPTIONS} {ENV.database.options.get('options', '')}".strip()

DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": ENV.database.host,
        "PORT": str(ENV.database.port),
        "NAME": ENV.database.name,
        "USER": ENV.database.user,
        "PASSWORD": ENV.database.password,
        # Services open their own transactions; a wrapper around each request would hold a
        # connection while the body of a slow client trickles in.
        "ATOMIC_REQUESTS": False,
        "CONN_MAX_AGE": 0,
        # After a restart of PostgreSQL the pool holds dead connections: test one before use
        # (an empty round trip) instead of answering the first requests with 503.
        "CONN_HEALTH_CHECKS": True,
        # A cursor that stays open between two statements would look for itself in another session.
        "DISABLE_SERVER_SIDE_CURSORS": DATABASE_IS_POOLED,
        "OPTIONS": {
            **ENV.database.options,
            "application_name": "mitosis",
            "connect_timeout": max(2, int(MITOSIS.pool_wait_s)),
            # The operator's own options come last and win. A pooler refuses even empty ones.
            **({"options": _options} if _options else {}),
            "pool": {
                "min_size": 0,
                "max_size": MITOSIS.django_pool_max,
                "timeout": MITOSIS.pool_wait_s,
                # An idle connection is given back: many processes share one max_connections.
                "max_idle": 60,
            },
        },
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
