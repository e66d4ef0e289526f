"""The shell of the worker side: plain asynchronous views that authenticate, dispatch and fail well.

No DRF and no thread: a fleet polls these. `route` builds a view from handlers per method;
handlers take the request, the proven identity and the path's parameters, and return a response.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import msgspec
import structlog
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from psycopg_pool import PoolTimeout
from rest_framework.views import APIView

from accounts.identity import Identity
from core import strict_json
from core.errors import (
    AuthenticationFailed,
    DatabaseUnavailable,
    DependencyUnavailable,
    DomainError,
    InvalidInput,
)
from core.problem import domain_problem, problem
from mitosis_protocol.enums import TokenKind
from mitosis_protocol.errors import ErrorCode
from runners.authentication import authenticate_bearer
from workers.services.certificates import check_certificate

P = ParamSpec("P")
T = TypeVar("T")
Body = TypeVar("Body", bound=msgspec.Struct)
View = Callable[..., Coroutine[Any, Any, HttpResponse]]
Handler = Callable[Concatenate[HttpRequest, Identity, P], Awaitable[HttpResponse]]

JSON: Final = "application/json"
# An existing worker leaves for good when a report is answered with 503, and its result with it;
# a restart of PostgreSQL takes seconds. Below the 60 s for which our own worker waits.
HOLD_S: Final = 45.0
_PAUSE_S: Final = 0.25
_MAX_PAUSE_S: Final = 2.0

log = structlog.get_logger(__name__)
_NEVER_FAIL: Final[set[Handler[...]]] = set()
_TAKE_DIRECT: Final[set[Handler[...]]] = set()
_encoder: Final = msgspec.json.Encoder()


class WrongShape(InvalidInput):
    """Valid JSON whose members are missing or of the wrong type: 422, as the framework answers."""

    http_status = HTTPStatus.UNPROCESSABLE_ENTITY


class WrongMediaType(InvalidInput):
    """A body that does not call itself JSON."""

    code = ErrorCode.REQUEST_UNSUPPORTED_MEDIA_TYPE
    http_status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


def route(docs: type[APIView], **handlers: Handler[...]) -> View:
    """A view of `handlers` by lower-case method; `docs` describes it in the OpenAPI document."""

    @csrf_exempt
    async def view(request: HttpRequest, **parameters: str) -> HttpResponse:
        handler = handlers.get((request.method or "").lower())
        if handler is None:
            return _not_allowed(handlers)
        answering = _leniently if handler in _NEVER_FAIL else _strictly
        return await answering(handler, request, parameters)

    # How the schema generator recognises and reads an API view.
    view.cls = docs  # type: ignore[attr-defined]
    view.initkwargs = {}  # type: ignore[attr-defined]
    return view


def never_fails(handler: Handler[...]) -> Handler[...]:
    """For fetch and heartbeat: an existing worker exits on any status but 2xx and 401.

    One restart of the database would end a whole fleet, so what we cannot do now is answered as
    "nothing for you": the next poll or beat comes by itself, and the lease outlives several.
    """
    _NEVER_FAIL.add(handler)
    return handler


def takes_direct(handler: Handler[P]) -> Handler[P]:
    """For bulk that does not go over the control plane: direct workers may call it as well."""
    _TAKE_DIRECT.add(handler)
    return handler


async def _leniently(
    handler: Handler[...], request: HttpRequest, parameters: dict[str, str]
) -> HttpResponse:
    try:
        return await handler(request, await _identify(request, handler), **parameters)
    except DependencyUnavailable as error:
        log.warning("worker.request_postponed", path=request.path, reason=error.message)
        return answer(None)
    except DomainError as error:
        return refusal(error)
    except Exception:  # a shell edge: a bug of ours must not end a fleet
        log.exception("worker.request_crashed", path=request.path)
        return answer(None)


async def _strictly(
    handler: Handler[...], request: HttpRequest, parameters: dict[str, str]
) -> HttpResponse:
    try:
        # Held like the work itself: a result must not be lost because its sender is unproven.
        identity = await persist(lambda: _identify(request, handler))
        return await handler(request, identity, **parameters)
    except DomainError as error:
        return refusal(error)


async def _identify(request: HttpRequest, handler: Handler[...]) -> Identity:
    header = request.headers.get("Authorization")
    try:
        return await authenticate_bearer(header, TokenKind.WORKER)
    except AuthenticationFailed:
        if handler not in _TAKE_DIRECT:
            raise
        identity = await authenticate_bearer(header, TokenKind.DIRECT)
    if settings.MTLS_HEADER:
        shown = request.headers.get(settings.MTLS_HEADER)
        await check_certificate(identity, [] if shown is None else [shown])
    return identity


async def persist(operation: Callable[[], Awaitable[T]]) -> T:
    """Repeat `operation` while something below us is away, for at most HOLD_S.

    Only for operations that may be repeated; raises the last DependencyUnavailable.
    """
    deadline = time.monotonic() + HOLD_S
    pause_s = _PAUSE_S
    while True:
        try:
            return await operation()
        except DependencyUnavailable:
            if time.monotonic() + pause_s > deadline:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(_MAX_PAUSE_S, pause_s * 2)


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run code that uses the ORM; raises DatabaseUnavailable, so that `persist` may repeat it."""
    return await sync_to_async(_with_fresh_connection)(call, *args, **kwargs)


def _with_fresh_connection(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    try:
        return call(*args, **kwargs)
    except (OperationalError, InterfaceError, PoolTimeout) as error:
        # Django drops a dead connection only between requests; we try again within one.
        connection.close()
        raise DatabaseUnavailable(outcome_unknown=True) from error
    except DatabaseUnavailable:
        connection.close()
        raise


def answer(body: object) -> HttpResponse:
    """200 with JSON; `null` where an existing worker would choke on an empty body."""
    response = HttpResponse(_encoder.encode(body), content_type=JSON)
    # A fetch changes the world although it is a GET: no cache may answer it.
    response.headers["Cache-Control"] = "no-store"
    return response


def refusal(error: DomainError) -> HttpResponse:
    """The problem body of one of our errors."""
    response = JsonResponse(domain_problem(error), status=error.http_status)
    response.headers["Cache-Control"] = "no-store"
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = 'Bearer realm="mitosis"'
    if error.retryable:
        response.headers["Retry-After"] = "1"
    return response


def read_json(request: HttpRequest, kind: type[Body]) -> Body:
    """The request's JSON as `kind`. Raises 415, 400 (broken JSON) or 422 (wrong shape)."""
    if request.content_type != JSON:
        raise WrongMediaType(f"the body has to be {JSON}")
    value = strict_json.loads(request.body)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise WrongShape(str(error)) from error


def _not_allowed(handlers: dict[str, Any]) -> HttpResponse:
    status = HTTPStatus.METHOD_NOT_ALLOWED
    body = problem(status, ErrorCode.REQUEST_METHOD_NOT_ALLOWED, "Method not allowed")
    response = JsonResponse(body, status=status)
    response.headers["Allow"] = ", ".join(sorted(name.upper() for name in handlers))
    return response
