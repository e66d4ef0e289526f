"""From a JSON body to a typed suite description, or a refusal that names the field.

Used by the suite API and by whoever takes suites from outside (CLI imports, tests).
"""

import re
from typing import Final, TypeVar

import msgspec

from core.errors import InvalidInput

Spec = TypeVar("Spec", bound=msgspec.Struct)

# msgspec ends its sentence with where it happened: " - at `$.worker_schedule.worker_count`".
_WHERE: Final = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING: Final = re.compile(r"missing required field `(?P<name>[^`]+)`")
_UNKNOWN: Final = re.compile(r"contains unknown field `(?P<name>[^`]+)`")


def parse_spec(data: object, kind: type[Spec]) -> Spec:
    """`data` (parsed JSON) as a `kind`; raises InvalidInput with the field in front."""
    try:
        return msgspec.convert(data, kind, strict=True)
    except msgspec.ValidationError as error:
        field, reason = _located(str(error))
        text = f"{field}: {reason}" if field else reason
        raise InvalidInput(
            text, extra={"errors": [{"field": field, "reason": reason, "code": "invalid"}]}
        ) from error


def _located(sentence: str) -> tuple[str, str]:
    where = _WHERE.search(sentence)
    path = where["path"] if where else ""
    reason = sentence[: where.start()] if where else sentence
    named = _MISSING.search(reason) or _UNKNOWN.search(reason)
    if named:
        path = f"{path}.{named['name']}".lstrip(".")
    return path, reason
