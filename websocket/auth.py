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

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

log = structlog.get_logger(__name__)


class MtlsRequired(AuthenticationFailed):
    """The installation wants a client certificate in the worker's name, and there is none."""

    code = ErrorCode.AUTH_MTLS_REQUIRED


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
    verified name of a client certificate there, and it must be the token's owner.

    The token alone is not enough then, and neither is the header: whoever forges one lacks the
    other.
    """

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wanted = settings.MTLS_HEADER.lower().encode()
        names = [value for name, value in scope["headers"] if name.lower() == wanted]
        subject = scope["identity"].subject.encode()
        if wanted and names != [subject]:
            await receive()
            await refuse(scope, send, MtlsRequired("a client certificate of this worker is needed"))
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
    values = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
    if len(values) > 1:
        raise AuthenticationFailed(
            "more than one Authorization header", code=ErrorCode.AUTH_MISSING
        )
    return values[0].decode("latin-1") if values else None
