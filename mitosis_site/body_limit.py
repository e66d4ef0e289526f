"""Stops oversize request bodies while they arrive.

Django's ASGI handler spools a whole body to disk before any code of ours runs, so a limit inside a
view comes too late. Sits around the HTTP application; the numbers come from the policy.
"""

import json
from collections.abc import Callable
from http import HTTPStatus

from core.problem import problem
from mitosis_protocol.errors import ErrorCode
from mitosis_site.runtime import AsgiApp, Message, Receive, Scope, Send


class BodyLimit:
    """`limit_of(path)` says how many bytes a request to that path may have."""

    def __init__(self, app: AsgiApp, limit_of: Callable[[str], int]) -> None:
        self._app = app
        self._limit_of = limit_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._limit_of(scope["path"])
        if _declared_bytes(scope) > limit:
            await _refuse(send, limit)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            # Django then closes its temporary file and gives up without an answer.
            return message if received <= limit else {"type": "http.disconnect"}

        await self._app(scope, counted, send)
        if received > limit:
            await _refuse(send, limit)


def _declared_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return 0


async def _refuse(send: Send, limit: int) -> None:
    detail = f"The body is larger than {limit} bytes"
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    body = json.dumps(problem(status, ErrorCode.REQUEST_TOO_LARGE, detail)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        # The rest of the body is still on its way and nobody will read it.
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
