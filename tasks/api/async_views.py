"""The shell of asynchronous views for users: authenticate, call, turn errors into problems.

For routes that wait (event streams) or read through the async pool. `user_route` makes a view of
one GET handler; `docs` is the class that describes it in the OpenAPI document.
"""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework.views import APIView

from accounts.authentication import authenticate_user, user_standing
from accounts.identity import Identity
from accounts.models import User
from accounts.request_rate import count_request
from core.errors import AuthenticationFailed, DomainError, InvalidInput, PermissionDenied, Throttled
from core.problem import domain_problem, problem
from mitosis_protocol.errors import ErrorCode
from runners.authentication import recheck

View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, by token or (identity None) by browser session."""

    user_id: int
    username: str
    identity: Identity | None

    async def recheck(self) -> None:
        """Raises DomainError once the token was revoked or the user locked."""
        if self.identity is not None:
            await recheck(self.identity)
            return
        standing = await user_standing(self.username)
        if standing is None or not standing.is_active:
            raise PermissionDenied


Handler = Callable[..., Awaitable[HttpResponseBase]]


def user_route(docs: type[APIView], handler: Handler) -> View:
    """A view that answers GET for any active user."""

    @csrf_exempt  # nothing here changes anything; other methods get their 405
    async def view(request: HttpRequest, **parameters: Any) -> HttpResponseBase:
        if request.method != "GET":
            return _not_allowed()
        try:
            caller = await _authenticate(request)
            # It may ask Redis; not in the one thread that all synchronous views share.
            await sync_to_async(count_request, thread_sensitive=False)(caller.user_id)
            return await handler(request, caller, **parameters)
        except DomainError as error:
            return _refusal(error)

    # How the schema generator recognises and reads an API view.
    view.cls = docs  # type: ignore[attr-defined]
    view.initkwargs = {}  # type: ignore[attr-defined]
    return view


async def _authenticate(request: HttpRequest) -> Caller:
    header = request.headers.get("Authorization")
    if header is not None:
        identity = await authenticate_user(header)
        return Caller(identity.id, identity.subject, identity)
    user = await request.auser()
    # The session was read on a connection of Django's pool; a stream must not keep it.
    await sync_to_async(close_old_connections)()
    if not isinstance(user, User):
        raise InvalidInput("an Authorization header is needed", code=ErrorCode.AUTH_MISSING)
    if not user.is_active:
        raise PermissionDenied
    return Caller(user.pk, user.username, None)


def _refusal(error: DomainError) -> HttpResponse:
    response = JsonResponse(domain_problem(error), status=error.http_status)
    response.headers["Cache-Control"] = "no-store"
    if isinstance(error, AuthenticationFailed):
        response.headers["WWW-Authenticate"] = 'Bearer realm="mitosis"'
    if isinstance(error, Throttled):
        response.headers["Retry-After"] = str(error.retry_after_s)
    elif error.retryable:
        response.headers["Retry-After"] = "1"
    return response


def _not_allowed() -> HttpResponse:
    status = HTTPStatus.METHOD_NOT_ALLOWED
    body = problem(status, ErrorCode.REQUEST_METHOD_NOT_ALLOWED, "Method not allowed")
    return JsonResponse(body, status=status, headers={"Allow": "GET"})
