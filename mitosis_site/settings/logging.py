"""Logs: one line per event on stderr, the same shape for structlog and the standard library."""

from typing import Any

from mitosis_site.env import ENV

LOGGING_CONFIG = "mitosis_site.logs.configure"


def _to_root(level: str) -> dict[str, Any]:
    # Handlers that Django or a server put there are taken away: one line per event.
    return {"handlers": [], "level": level, "propagate": True}


LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": "mitosis_site.logs.make_formatter", "style": ENV.log_format}},
    "filters": {
        "redact": {"()": "core.redaction.RedactingFilter"},
        "only_exceptions": {
            "()": "django.utils.log.CallbackFilter",
            "callback": lambda record: record.exc_info is not None,
        },
    },
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["redact"],
        }
    },
    "root": {"handlers": ["stderr"], "level": ENV.log_level},
    "loggers": {
        "django": _to_root("INFO"),
        "django.server": _to_root("INFO"),
        # The request context logs every refused request already; tracebacks stay.
        "django.request": {**_to_root("ERROR"), "filters": ["only_exceptions"]},
        "uvicorn": _to_root("INFO"),
        "uvicorn.error": _to_root("INFO"),
        # Access lines of servers carry query strings.
        "uvicorn.access": _to_root("CRITICAL"),
        "daphne": _to_root("WARNING"),
        # At lower levels these print signed URLs, headers and messages, whatever our level is.
        "boto3": _to_root("WARNING"),
        "botocore": _to_root("WARNING"),
        "httpcore2": _to_root("WARNING"),
        "httpx2": _to_root("WARNING"),
        "urllib3": _to_root("WARNING"),
        "websockets": _to_root("WARNING"),
        "kombu": _to_root("WARNING"),
        "amqp": _to_root("WARNING"),
        # Job by job at INFO: that would be one line every second.
        "celery.app.trace": _to_root("WARNING"),
        "celery.beat": _to_root("WARNING"),
        "celery.worker.strategy": _to_root("WARNING"),
    },
}
