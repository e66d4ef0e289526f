"""Secrets never reach a log: one masking rule for structlog and for the standard library.

Installed by mitosis_site.settings.logging. Masks bearer tokens, passwords, signed URL parameters,
credentials inside URLs, and whole values under tell-tale keys, at any depth.
"""

import logging
import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from typing_extensions import override

MASK: Final = "***"

_SECRET_KEYS: Final = frozenset(
    {
        "envs",
        "env",
        "environ",
        "authorization",
        "cookie",
        "set-cookie",
        "api_key",
        "private_key",
        "signing_key",
        "credential",
        "credentials",
        "signature",
    }
)
# Parts of a key that give it away wherever they stand: md5_password, refresh_token, secret_key.
_SECRET_PARTS: Final = ("password", "passwd", "token", "secret")
# Numbers and flags about tokens, as in token_generation=3, are no secrets.
_HARMLESS: Final = (bool, int, float, type(None))

# Every repetition that could start anywhere is bounded: a hostile line of 64 KiB must not cost
# seconds, as `eyJ-eyJ-eyJ-...` would without the bounds.
_TEXT_RULES: Final = (
    (re.compile(r"(?i)\b(bearer|basic)\s{1,4}[A-Za-z0-9._~+/=-]+"), rf"\1 {MASK}"),
    (
        re.compile(r"(?i)\b(X-Amz-(?:Signature|Credential|Security-Token))(=|%3D)[^&\s\"']+"),
        rf"\1\2{MASK}",
    ),
    # A key and its value in prose, JSON, a query string or a repr.
    (
        re.compile(
            r"(?i)((?:password|passwd|token|secret)[\w-]{0,64}[\"']?\s{0,4}[=:]\s{0,4})"
            r"(\[[^\]]{0,2048}\]|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&}\])\"']+)"
        ),
        rf"\1{MASK}",
    ),
    # JSON and reprs of a task's environment: {...} without nesting, which is all envs can be.
    (re.compile(r"(?i)([\"']?\benvs?[\"']?\s{0,4}[=:]\s{0,4})\{[^{}]*\}"), rf"\1{MASK}"),
    (re.compile(r"([a-z][a-z0-9+.-]{0,20}://[^\s:/@]*):[^\s@/]+@"), rf"\1:{MASK}@"),
    # A compact JWT, also where nobody announced it.
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,2048}\.[A-Za-z0-9_-]{1,4096}\.[A-Za-z0-9_-]+"), MASK),
)
_MAX_DEPTH: Final = 8  # deeper than any event of ours; what lies below is masked unseen


def redact_text(text: str) -> str:
    """`text` with every secret it shows replaced by ***."""
    for pattern, replacement in _TEXT_RULES:
        text = pattern.sub(replacement, text)
    return text


def redact_value(value: object, *, depth: int = 0) -> object:
    """A copy of `value` fit for a log; what is not text or a container is left as it is."""
    if isinstance(value, str | bytes):
        return redact_text(value if isinstance(value, str) else value.decode("utf-8", "replace"))
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return value
    if depth >= _MAX_DEPTH:
        return MASK
    if isinstance(value, Mapping):
        return {key: _redact_item(key, inner, depth) for key, inner in value.items()}
    return [redact_value(inner, depth=depth + 1) for inner in value]


def redact_event(
    logger: object, method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """A structlog processor; put it after the one that renders exceptions into text."""
    for key in list(event):
        event[key] = _redact_item(key, event[key], 0)
    return event


class RedactingFilter(logging.Filter):
    """For handlers of the standard library: masks the final text and the traceback."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, Mapping):
            # structlog hands its event over as a mapping to be rendered later.
            record.msg = redact_value(record.msg)
        else:
            record.msg = redact_text(record.getMessage())
            record.args = ()
        if record.exc_info and record.exc_text is None:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = redact_text(record.exc_text)
        return True


def _redact_item(key: object, value: object, depth: int) -> object:
    if isinstance(key, str) and not isinstance(value, _HARMLESS) and _is_secret(key):
        return MASK
    return redact_value(value, depth=depth + 1)


def _is_secret(key: str) -> bool:
    lowered = key.lower()
    return lowered in _SECRET_KEYS or any(part in lowered for part in _SECRET_PARTS)
