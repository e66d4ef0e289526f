"""Structured logs of the node agent's programs: console or JSON lines, secrets taken out.

Called once by cli, and again by main when the name of a log file is known.
"""

import logging
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import IO, Any

import structlog

# Last line of defence: no call site logs these, but exception texts come from libraries.
_SECRETS = re.compile(
    r"(?i)(bearer\s+|x-amz-signature=|x-amz-credential=|x-amz-security-token=|signature=)[^\s&\"']+"
)


def configure_logging(
    *, level: str, form: str, file: Path | None = None, is_final: bool = False
) -> None:
    """Send log lines to standard error and, when given, append them to `file`.

    `is_final`: never called again, so loggers need not look for their settings at every line.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    # The HTTP library logs whole URLs at INFO, signatures included.
    for name in ("httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)
    renderer: structlog.typing.Processor
    if form == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty() and file is None)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            hide_secrets,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(file=_Streams(file)),  # type: ignore[arg-type]  # only write and flush are used
        cache_logger_on_first_use=is_final,
    )


def hide_secrets(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Blank the values of tokens and URL signatures in every text of a log line."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = _SECRETS.sub(r"\1***", value)
    return event


class _Streams:
    """Standard error and an optional file, written line by line."""

    def __init__(self, file: Path | None) -> None:
        self._streams: list[IO[str]] = [sys.stderr]
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            # Appending keeps lines of several workers whole in a shared file.
            self._streams.append(file.open("a", buffering=1, encoding="utf-8"))

    def write(self, text: str) -> None:
        for stream in self._streams:
            stream.write(text)

    def flush(self) -> None:
        for stream in self._streams:
            stream.flush()
