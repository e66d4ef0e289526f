"""HTTP as the worker uses it: one place that turns failures into the agent's errors.

Owns client settings and the mapping of transport errors and statuses. Used by enrolment,
http_comm and transfers; knows nothing of tasks.
"""

from typing import TypeVar

import httpx2
import msgspec

from nodeagent.errors import CoordinatorUnavailable
from nodeagent.tls import ClientTls

T = TypeVar("T")

# Longer than any sensible long poll, so that a held fetch is not mistaken for a dead coordinator.
READ_TIMEOUT_S = 60.0
_TIMEOUT = httpx2.Timeout(READ_TIMEOUT_S, connect=10.0, pool=30.0)
# Nothing was sent yet when one of these is raised, so the request had no effect.
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_TRY_AGAIN = frozenset({408, 425, 429})


def make_client(
    base_url: str = "", token: str | None = None, tls: ClientTls | None = None
) -> httpx2.AsyncClient:
    """A client that follows no redirects: a token or a signed URL goes where we sent it."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "mitosis-worker"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return httpx2.AsyncClient(
        base_url=base_url,
        headers=headers,
        timeout=_TIMEOUT,
        follow_redirects=False,
        verify=True if tls is None else tls.for_http,
    )


def unavailable(error: httpx2.HTTPError | httpx2.InvalidURL) -> CoordinatorUnavailable:
    """A transport failure as a retryable error, without the URL."""
    return CoordinatorUnavailable(
        f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        maybe_applied=not isinstance(error, _NEVER_SENT),
    )


async def send(
    client: httpx2.AsyncClient,
    method: str,
    path: str,
    *,
    content: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    """One request and its whole answer; raises CoordinatorUnavailable for what time may cure."""
    try:
        response = await client.request(method, path, content=content, headers=headers)
    except httpx2.HTTPError as error:
        raise unavailable(error) from error
    raise_if_transient(response)
    return response


def raise_if_transient(response: httpx2.Response) -> None:
    """Statuses that say nothing about the request itself."""
    raise_if_transient_status(response.status_code, response.headers.get("Retry-After"))


def raise_if_transient_status(status: int, retry_after: str | None) -> None:
    """The same, of an answer that came another way."""
    if status >= 500 or status in _TRY_AGAIN:
        raise CoordinatorUnavailable(
            f"answered {status}", retry_after_s=_retry_after_s(retry_after)
        )


def decode(response: httpx2.Response, kind: type[T]) -> T:
    """The JSON body as `kind`; a body that does not fit is a proxy's page, so retryable."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except msgspec.MsgspecError as error:
        raise CoordinatorUnavailable(f"unreadable answer: {error}") from error


def problem(response: httpx2.Response) -> str:
    """The reason in an error body, for logs: `msg` if it is our JSON, else the status alone."""
    try:
        body = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.MsgspecError:
        return f"status {response.status_code}"
    return f"status {response.status_code}: {body.msg[:300]}"


class _Problem(msgspec.Struct, frozen=True):
    msg: str


def _retry_after_s(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdigit() else None
