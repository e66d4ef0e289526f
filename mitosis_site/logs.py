"""One log format for everything: structlog's events and the standard library's records.

Django calls `configure` while it sets itself up (settings.LOGGING_CONFIG), before any app loads.
Every line passes core.redaction twice: values before they are rendered, the record's own text by
the handler's filter.
"""

import logging
import logging.config
from collections.abc import Mapping
from typing import Any, Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from core.redaction import redact_event

# What every event gets, wherever it comes from. Tracebacks are rendered as text without local
# variables: those hold tokens and task environments.
SHARED: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    # Only named extras: Django attaches the request, whose repr shows the query string.
    structlog.stdlib.ExtraAdder(allow=("status_code",)),
    structlog.processors.StackInfoRenderer(),
)


def configure(config: Mapping[str, Any]) -> None:
    """Apply settings.LOGGING and route structlog through it."""
    logging.config.dictConfig(dict(config))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Settings may be configured again (tests, management commands in tests).
        cache_logger_on_first_use=False,
    )


def make_formatter(style: str) -> structlog.stdlib.ProcessorFormatter:
    """`json`: one object per line, for collectors. `console`: for people."""
    render: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        _plain_values,
        redact_event,
    ]
    if style == "json":
        render.append(structlog.processors.JSONRenderer())
    else:
        render.append(structlog.dev.ConsoleRenderer(colors=False))
    return structlog.stdlib.ProcessorFormatter(processors=render, foreign_pre_chain=list(SHARED))


def _plain_values(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Objects become text before redaction, not after it inside the renderer."""
    return {
        name: value if isinstance(value, _PLAIN) else str(value) for name, value in event.items()
    }


_PLAIN: Final = (str, int, float, bool, type(None), dict, list, tuple)
