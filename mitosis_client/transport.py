"""What both clients share: how a Call becomes a request, an answer a value, a failure an error.

No I/O here. `Patience` decides whether a call is made again and after which pause.
"""

import random
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from mitosis_client.calls.call import Call
from mitosis_client.errors import (
    ApiError,
    CoordinatorUnreachable,
    UnexpectedAnswer,
    error_class,
)

T = TypeVar("T")

DEFAULT_TIMEOUT_S: Final = 30.0
CONNECT_TIMEOUT_S: Final = 5.0
MAX_TRIES: Final = 4
FIRST_PAUSE_S: Final = 0.2
MAX_PAUSE_S: Final = 5.0
USER_AGENT: Final = "mitosis-client"

_BUSY: Final = frozenset({429, 502, 503, 504})
_UNTOUCHED: Final = frozenset({429})  # refused before anything was done, whatever the method


class _Problem(msgspec.Struct):
    """The parts of a refusal that we read."""

    msg: str = ""
    detail: str = ""
    code: str = ""
    retryable: bool = False


def timeouts(timeout_s: float | None = None) -> httpx2.Timeout:
    return httpx2.Timeout(timeout_s or DEFAULT_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)


def tls_for(url: str) -> ssl.SSLContext:
    """Reading the system's certificates takes 60 ms; a plain address never asks for them.

    Should one lead to TLS after all, the empty context trusts nobody.
    """
    return _trusting() if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _trusting() -> ssl.SSLContext:
    return httpx2.create_ssl_context()


def headers_of(token: str | None) -> dict[str, str]:
    found = {"User-Agent": USER_AGENT}
    return {**found, "Authorization": f"Bearer {token}"} if token else found


def arguments(call: Call[Any]) -> dict[str, Any]:
    """Keyword arguments of `request` for this call."""
    found: dict[str, Any] = {"params": dict(call.params), "headers": dict(call.headers)}
    if call.body is not None:
        found["content"] = msgspec.json.encode(call.body)
        found["headers"]["Content-Type"] = "application/json"
    if call.timeout_s is not None:
        found["timeout"] = timeouts(call.timeout_s)
    return found


def read_answer(call: Call[T], response: httpx2.Response) -> T:
    """The typed answer. Raises ApiError for a refusal, UnexpectedAnswer for nonsense."""
    if response.status_code >= 300:
        raise refusal(response)
    if call.answer is type(None):
        return None
    if call.answer is str:
        return response.text  # type: ignore[return-value]  # T is str for these calls
    try:
        return msgspec.json.decode(response.content, type=call.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedAnswer(
            f"{call.method} {call.path}: the answer is not one of a Mitosis coordinator ({error})"
        ) from error


def refusal(response: httpx2.Response) -> ApiError:
    """The error an answer stands for; the body may be anything."""
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = _Problem(msg=response.text[:200].strip())
    text = problem.msg or problem.detail or f"HTTP {response.status_code}"
    return error_class(response.status_code)(
        text, status=response.status_code, code=problem.code, retryable=problem.retryable
    )


def unreachable(url: str, error: Exception, who: str = "the coordinator") -> CoordinatorUnreachable:
    reason = str(error) or type(error).__name__
    return CoordinatorUnreachable(f"cannot reach {who} at {url}: {reason}")


class Patience:
    """For one call: how often it was tried and how long to wait before the next time."""

    def __init__(self, *, is_repeatable: bool, max_tries: int = MAX_TRIES) -> None:
        self._is_repeatable = is_repeatable
        self._left = max_tries - 1
        self._pause_s = FIRST_PAUSE_S

    def after_answer(self, response: httpx2.Response) -> float | None:
        """Seconds to wait before trying again; None: this answer stands."""
        status = response.status_code
        if status not in _BUSY or not (self._is_repeatable or status in _UNTOUCHED):
            return None
        return self._next(_asked_pause(response.headers))

    def after_error(self, error: httpx2.TransportError) -> float | None:
        """As after_answer. A call that may have arrived is repeated only if that is harmless."""
        never_arrived = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
        if not (self._is_repeatable or never_arrived):
            return None
        return self._next(0.0)

    def _next(self, at_least_s: float) -> float | None:
        if self._left <= 0:
            return None
        self._left -= 1
        pause_s = self._pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
        self._pause_s = min(MAX_PAUSE_S, self._pause_s * 2)
        return max(pause_s, min(at_least_s, MAX_PAUSE_S))


def _asked_pause(headers: Mapping[str, str]) -> float:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0
