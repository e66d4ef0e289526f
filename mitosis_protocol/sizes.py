"""Storage sizes and quota changes as text ("10GB", "1.5 MiB", "+2GiB").

Sizes are decimal unless they say `i`; case, blanks and underscores do not matter. A change adds
(`+`), takes away (`-`) or sets (`=`, or no sign).
"""

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Final, Literal

from mitosis_protocol.errors import InvalidValue

MAX_SIZE: Final = 2**63 - 1  # a bigint column

_POWERS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_SIZE: Final = re.compile(
    r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?P<exponent>e[+-]?[0-9]{1,3})?"
    r"(?:(?P<prefix>[kmgtpe])(?P<binary>i)?)?b?"
)
_COUNT: Final = re.compile(r"[0-9]{1,19}")
_MAX_TEXT: Final = 64
_BLANKS: Final = re.compile(r"[\s_]+")


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What an administrator asked for: `op` applied to `amount`."""

    op: Literal["+", "-", "="]
    amount: int

    def apply(self, current: int, *, floor: int | None = None) -> int:
        """The new value, at least `floor` if one is given; raises InvalidValue beyond 64 bits."""
        changed = {"+": current + self.amount, "-": current - self.amount, "=": self.amount}[
            self.op
        ]
        if floor is not None:
            changed = max(changed, floor)
        if not -MAX_SIZE <= changed <= MAX_SIZE:
            raise InvalidValue("the quota would not fit 64 bits")
        return changed


def parse_size(text: str) -> int:
    """Bytes, rounded to the nearest; raises InvalidValue."""
    compact = _BLANKS.sub("", text).lower()
    match = _SIZE.fullmatch(compact) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise InvalidValue(f"{text[:64]!r} is not a size; write for example 10GB or 1.5 MiB")
    base = 1024 if match["binary"] else 1000
    with localcontext() as context:
        # 64 digits of text need 64 digits of room, or rounding would start too early.
        context.prec = 128
        number = Decimal(f"{match['number']}{match['exponent'] or ''}")
        exact = number * base ** _POWERS[match["prefix"] or ""]
        size = int(exact.quantize(Decimal(1), ROUND_HALF_UP)) if exact <= MAX_SIZE else MAX_SIZE + 1
    if size > MAX_SIZE:
        raise InvalidValue(f"the size {text!r} does not fit 64 bits")
    return size


def format_size(size: int) -> str:
    """Exact and readable: the largest binary unit that divides `size`, else plain bytes."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        count, rest = divmod(size, 1024**power)
        if count and not rest:
            return f"{count}{unit}"
    return str(size)


def parse_size_change(text: str) -> QuotaChange:
    """A storage quota: a size with an optional sign."""
    op, rest = _split_sign(text)
    return QuotaChange(op, parse_size(rest))


def parse_count_change(text: str) -> QuotaChange:
    """A group quota: a whole number with an optional sign."""
    op, rest = _split_sign(text)
    if _COUNT.fullmatch(rest) is None or int(rest) > MAX_SIZE:
        raise InvalidValue(f"{text[:64]!r} is not a count; write for example 8, +2, -1 or =5")
    return QuotaChange(op, int(rest))


def _split_sign(text: str) -> tuple[Literal["+", "-", "="], str]:
    stripped = text.strip()
    for op in ("+", "-", "="):
        if stripped.startswith(op):
            return op, stripped[1:].strip()
    return "=", stripped
