"""The base of every enumeration here: a wire string and a database integer in one member.

Everybody imports it from mitosis_protocol.enums; it is a file of its own only for length.
"""

from enum import StrEnum
from typing import TYPE_CHECKING, Self

from mitosis_protocol.errors import InvalidValue

if TYPE_CHECKING:
    from typing_extensions import override
else:
    # The standard library has it from 3.12 on, and this package installs nothing but msgspec.
    def override(method: object) -> object:
        return method


class CodedEnum(StrEnum):
    """A wire string with a database integer and, sometimes, further accepted spellings."""

    code: int
    aliases: tuple[str, ...]

    def __new__(cls, wire: str, code: int, *aliases: str) -> Self:
        member = str.__new__(cls, wire)
        member._value_ = wire
        member.code = code
        member.aliases = aliases
        return member

    @classmethod
    def from_code(cls, code: int) -> Self:
        """The member stored as `code`; raises InvalidValue for an integer nobody wrote."""
        for member in cls:
            if member.code == code:
                return member
        raise InvalidValue(f"{code} is not the code of a {cls.__name__}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The member spelled `text` on input, aliases included; case matters otherwise."""
        for member in cls:
            if text == member.value or text in member.aliases:
                return member
        expected = ", ".join(member.value for member in cls)
        raise InvalidValue(f"{text[:64]!r} is not one of: {expected}")

    @classmethod
    @override
    def _missing_(cls, value: object) -> Self | None:
        # msgspec asks here too, so aliases work inside JSON bodies as well.
        return next((member for member in cls if value in member.aliases), None)

    # Without these four, `role >= Role.WRITE` would compare the spellings: "Admin" < "Read".
    @override
    def __lt__(self, other: str) -> bool:
        return self.code < self._same_kind(other).code

    @override
    def __le__(self, other: str) -> bool:
        return self.code <= self._same_kind(other).code

    @override
    def __gt__(self, other: str) -> bool:
        return self.code > self._same_kind(other).code

    @override
    def __ge__(self, other: str) -> bool:
        return self.code >= self._same_kind(other).code

    def _same_kind(self, other: str) -> Self:
        if isinstance(other, type(self)):
            return other
        raise TypeError(f"{type(self).__name__} and {type(other).__name__} have no common order")
