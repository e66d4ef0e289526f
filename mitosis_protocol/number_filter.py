"""Filters such as `>=5` or `!=0` on exit status and priority.

Parsed here for the API and the command line; the API turns `lookup` into a query.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, cast

from mitosis_protocol.errors import InvalidValue

Operator = Literal[">=", "<=", "!=", ">", "<", "="]

_INT32_MIN: Final = -(2**31)
_INT32_MAX: Final = 2**31 - 1
_FILTER: Final = re.compile(r"(?P<op>>=|<=|!=|>|<|=)?(?P<number>[+-]?[0-9]{1,10})")
_COMPARE: Final[dict[Operator, Callable[[int, int], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    "=": operator.eq,
}
_SQL: Final[dict[Operator, str]] = {
    ">=": ">=",
    "<=": "<=",
    "!=": "<>",
    ">": ">",
    "<": "<",
    "=": "=",
}
_LOOKUPS: Final[dict[Operator, str]] = {
    ">=": "gte",
    "<=": "lte",
    "!=": "exact",
    ">": "gt",
    "<": "lt",
    "=": "exact",
}


@dataclass(frozen=True, slots=True)
class NumberFilter:
    """A comparison with a 32-bit integer."""

    op: Operator
    value: int

    def matches(self, number: int) -> bool:
        """Whether `number` passes."""
        return _COMPARE[self.op](number, self.value)

    @property
    def sql_operator(self) -> str:
        """The operator for hand-written SQL; the value is still to be bound."""
        return _SQL[self.op]

    @property
    def lookup(self) -> str:
        """The ORM lookup; exclude instead of filter when `is_negated`."""
        return _LOOKUPS[self.op]

    @property
    def is_negated(self) -> bool:
        """Whether the lookup finds the rows that must not appear."""
        return self.op == "!="


def parse_number_filter(text: str) -> NumberFilter:
    """`>=5`, `!=0`, `-1`; no sign of comparison means equality. Raises InvalidValue."""
    match = _FILTER.fullmatch(text)
    number = int(match["number"]) if match is not None else 0
    if match is None or not _INT32_MIN <= number <= _INT32_MAX:
        raise InvalidValue(f"{text[:64]!r} is not a comparison such as 5, =5, !=0, >=1 or <-2")
    return NumberFilter(cast("Operator", match["op"] or "="), number)
