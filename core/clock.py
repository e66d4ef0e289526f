"""The coordinator's wall clock: the only place Django code reads the time.

Leases and fences never use it; they compare with the database's `clock_timestamp()`. Tests swap it
with `using`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

_source: Callable[[], datetime] | None = None


def now() -> datetime:
    """The present moment, aware, in UTC."""
    if _source is not None:
        return _source()
    return datetime.now(UTC)


@contextmanager
def using(source: Callable[[], datetime]) -> Iterator[None]:
    """Answer `now()` from `source` inside the block; for tests."""
    global _source  # noqa: PLW0603 - one clock per process is the point
    previous, _source = _source, source
    try:
        yield
    finally:
        _source = previous
