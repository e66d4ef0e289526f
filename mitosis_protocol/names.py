"""Names of users and groups: one namespace, one rule."""

import re
from typing import Final

from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_NAME_CHARS

# Anchored by fullmatch; `$` alone would let a trailing newline through.
NAME_PATTERN: Final = rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARS}}}"
_NAME: Final = re.compile(NAME_PATTERN)


def is_valid_name(text: str) -> bool:
    """Whether `text` may name a user or a group."""
    return _NAME.fullmatch(text) is not None


def check_name(text: str, *, what: str = "name") -> str:
    """`text` itself, or InvalidValue saying what a name looks like."""
    if not is_valid_name(text):
        raise InvalidValue(
            f"{text[:64]!r} is not a valid {what}: "
            f"1 to {MAX_NAME_CHARS} letters, digits, underscores or hyphens"
        )
    return text
