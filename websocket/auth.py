"""The token check of WebSocket upgrades: nobody unknown is ever accepted.

Wraps a consumer in websocket.routing. The identity comes from the Authorization header alone;
tokens in URLs are not looked at. Refusals are HTTP answers (401, 403, 503) where the server can
send them, else the 403 that closing before the accept means.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
import structlog
from django.conf import settings

from core.errors import AuthenticationFailed, DomainError, InvalidInput
from core.problem import domain_problem
from mitosis_protocol.enums import TokenKind
from mitosis_protocol.errors import ErrorCode
from runners.authentication import authenticate_bearer
from workers.services.certificates import check_certificate

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

log = structlog.get_logger(__name__)


DENIAL: Final = "websocket.http.response"  # the ASGI extension for refusing with a body


class BearerRequired:
    """Puts the caller's Identity into `scope["identity"]` or refuses the upgrade."""

    def __init__(self, app: AsgiApp, kind: TokenKind) -> None:
        self._app = app
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope["identity"] = await authenticate_bearer(_header(scope), self._kind)
        except DomainError as error:
            await receive()
            await refuse(scope, send, error)
            return
        await self._app(scope, receive, send)


class CertificateRequired:
    """Behind BearerRequired: where the installation names a header, a TLS proxy must have put the
    certificate of the token's owner there (workers.services.certificates).
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if settings.MTLS_HEADER:
                await check_certificate(scope["identity"], _values(scope, settings.MTLS_HEADER))
        except DomainError as error:
            await receive()
            await refuse(scope, send, error)
            return
        await self._app(scope, receive, send)


async def refuse(scope: Scope, send: Send, error: DomainError) -> None:
    """Answer an upgrade that has not been accepted."""
    # A missing header is 400 on the HTTP API for existing clients' sake; here it is plain 401.
    status = HTTPStatus(error.http_status)
    if isinstance(error, InvalidInput):
        status = HTTPStatus.UNAUTHORIZED
    log.info("socket.refused", code=error.code.value, status=int(status))
    if DENIAL not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close"})
        return
    headers = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="mitosis"'))
    body = msgspec.json.encode({**domain_problem(error), "status": int(status)})
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": f"{DENIAL}.start", "status": int(status), "headers": headers})
    await send({"type": f"{DENIAL}.body", "body": body})


def _header(scope: Scope) -> str | None:
    values = _values(scope, "authorization")
    if len(values) > 1:
        raise AuthenticationFailed(
            "more than one Authorization header", code=ErrorCode.AUTH_MISSING
        )
    return values[0] if values else None


def _values(scope: Scope, header: str) -> list[str]:
    wanted = header.lower().encode()
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted]
