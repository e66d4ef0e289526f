"""Gives every request an id that its log lines and its answer carry.

The id lives in structlog's context variables, so services and the audit log find it there without
being handed a request. A caller's own X-Request-ID is kept when it is harmless.
"""

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Final, cast

import structlog
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from core.counters import LATENCY_S, first_of, histogram, one_of

HEADER: Final = "X-Request-ID"

# No spaces, quotes or control characters: it goes into logs and headers as it is.
_HARMLESS: Final = re.compile(r"[A-Za-z0-9._-]{8,64}")

log = structlog.get_logger("mitosis.http")

REQUEST_SECONDS: Final = histogram(
    "mitosis_http_request_seconds",
    "From the request to the head of its answer, by name of the route",
    first_of("route", 250),
    one_of("method", ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")),
    one_of("code", ("1xx", "2xx", "3xx", "4xx", "5xx")),
    buckets=LATENCY_S,
)

GetResponse = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


@sync_and_async_middleware
def request_context(get_response: GetResponse) -> GetResponse:
    """Outermost middleware: everything inside logs with the request's id."""

    async def on_loop(request: HttpRequest) -> HttpResponseBase:
        request_id, started = request_id_of(request), time.monotonic()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = await cast("Awaitable[HttpResponseBase]", get_response(request))
            return _finished(request, response, request_id, started)

    def in_thread(request: HttpRequest) -> HttpResponseBase:
        request_id, started = request_id_of(request), time.monotonic()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            response = cast("HttpResponseBase", get_response(request))
            return _finished(request, response, request_id, started)

    return on_loop if iscoroutinefunction(get_response) else in_thread


def request_id_of(request: HttpRequest) -> str:
    """The caller's id if it can do no harm in a log, else a new one."""
    given = request.headers.get(HEADER, "")
    return given if _HARMLESS.fullmatch(given) else uuid.uuid4().hex


def _level(status: int) -> int:
    if status < 400:
        # Workers poll several times a second each: answers that went well are for debugging.
        return logging.DEBUG
    if status < 500:
        return logging.INFO
    # 503 is how we say that a store is away, also to whoever waits for our start.
    return logging.WARNING if status == 503 else logging.ERROR


def _finished(
    request: HttpRequest, response: HttpResponseBase, request_id: str, started: float
) -> HttpResponseBase:
    response.headers[HEADER] = request_id
    status = response.status_code
    duration_s = time.monotonic() - started
    _count(request, status, duration_s)
    log.log(
        _level(status),
        "http.request",
        method=request.method,
        # Without the query string: that is where careless callers put secrets.
        path=request.path,
        status=status,
        duration_ms=round(duration_s * 1000, 1),
    )
    return response


def _count(request: HttpRequest, status: int, duration_s: float) -> None:
    match = request.resolver_match
    # Static files and unknown paths have no route: their names come from outside.
    route = "none" if match is None else match.view_name or "unnamed"
    series = REQUEST_SECONDS.of(route, request.method or "", f"{status // 100}xx")
    series.observe(duration_s)
