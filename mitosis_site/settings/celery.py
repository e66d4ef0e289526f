"""Celery runs periodic jobs only: JSON messages, no results, nothing that outlives its period."""

from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from mitosis_site.env import ENV
from mitosis_site.settings.numbers import MITOSIS


def broker_url(redis_url: str) -> str:
    """Celery's spelling of a Redis address; a Unix socket is `redis+socket://` there."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    query = dict(parse_qsl(parts.query))
    query["virtual_host"] = query.pop("db", "0")
    # Not urlunsplit: it drops the slashes before an empty host.
    return f"redis+socket://{parts.netloc}{parts.path}?{urlencode(query)}"


CELERY_BROKER_URL = broker_url(ENV.redis_url)
# Pickle in a shared Redis is remote code execution.
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_EVENT_SERIALIZER = "json"
CELERY_RESULT_BACKEND = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "mitosis-periodic"
CELERY_TASK_ACKS_LATE = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# For ever: Redis may be away for hours, and a worker that gave up would have to be restarted.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {
    "global_keyprefix": "mitosis:",
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
}
CELERY_TIMEZONE = "UTC"
CELERY_ENABLE_UTC = True
# Beyond the statement limit nothing useful happens any more: free the worker for the next period.
CELERY_TASK_SOFT_TIME_LIMIT = int(MITOSIS.statement_timeout_s * 4)
CELERY_TASK_TIME_LIMIT = int(MITOSIS.statement_timeout_s * 5)
CELERY_BEAT_SCHEDULER = "celery.beat.Scheduler"
