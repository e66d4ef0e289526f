"""A request before it is sent: what to ask, what comes back, whether it may be asked twice.

Both clients send these, so a route is described once. Nothing here does I/O.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

T = TypeVar("T")
Params: TypeAlias = Mapping[str, "str | int | list[str]"]
JsonBody: TypeAlias = Mapping[str, Any]

KEY_HEADER = "Idempotency-Key"
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `answer` is None for an empty body and `str` for plain text."""

    method: str
    path: str
    answer: type[T]
    body: JsonBody | None = None
    params: Params = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = None

    @property
    def is_repeatable(self) -> bool:
        """Whether asking again cannot do it twice."""
        return self.method in _REPEATABLE or KEY_HEADER in self.headers


@dataclass(frozen=True, slots=True)
class Pages(Generic[T]):
    """A list that is read page by page: how to ask for a page, and what its items are called."""

    page: Callable[[int, int], Call[dict[str, Any]]]
    items: str
    item: type[T]
    size: int = 200


def is_last(pages: Pages[Any], answer: Mapping[str, Any]) -> bool:
    """Whether nothing follows; a coordinator may give less at a time than was asked for."""
    found = len(answer[pages.items])
    if not found or "has_more" in answer:
        return not (found and answer["has_more"])
    return found < min(pages.size, answer.get("limit") or pages.size)


def with_key(key: str | None) -> Mapping[str, str]:
    """The header that makes a submit safe to repeat; a new key unless one is given."""
    return {KEY_HEADER: key or uuid.uuid4().hex}


def part(value: object) -> str:
    """One segment of a path; what would change the path is escaped."""
    return quote(str(value), safe="")


def key_path(key: str) -> str:
    """A key of an attachment: its slashes are part of the path."""
    return quote(key, safe="/")


def given(**members: Any) -> dict[str, Any]:
    """Only the members that say something."""
    return {name: value for name, value in members.items() if value is not None}


def joined(values: Iterable[str] | None) -> str | None:
    """A set as query parameters have it."""
    found = list(values or ())
    return ",".join(found) if found else None
