"""The Content-Security-Policy header of every answer.

The strict policy of the settings holds for all pages. The one exception is DRF's browsable API:
its templates carry `style` attributes, so those pages alone allow attributes (never style blocks,
never scripts). A view may not loosen the policy; it may only replace it by a tighter header.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Final, cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

HEADER: Final = "Content-Security-Policy"
BROWSABLE_API_EXTRA: Final = (("style-src-attr", ("'unsafe-inline'",)),)

GetResponse = Callable[[HttpRequest], HttpResponseBase | Awaitable[HttpResponseBase]]


@sync_and_async_middleware
def content_security_policy(get_response: GetResponse) -> GetResponse:
    """Adds the header on the way out."""

    async def on_loop(request: HttpRequest) -> HttpResponseBase:
        return _protect(await cast("Awaitable[HttpResponseBase]", get_response(request)))

    def in_thread(request: HttpRequest) -> HttpResponseBase:
        return _protect(cast("HttpResponseBase", get_response(request)))

    return on_loop if iscoroutinefunction(get_response) else in_thread


def _protect(response: HttpResponseBase) -> HttpResponseBase:
    renderer = getattr(response, "accepted_renderer", None)
    extra = BROWSABLE_API_EXTRA if getattr(renderer, "format", None) == "api" else ()
    response.headers.setdefault(HEADER, _header(_frozen(settings.CONTENT_SECURITY_POLICY), extra))
    return response


Directives = tuple[tuple[str, tuple[str, ...]], ...]


def _frozen(policy: Mapping[str, tuple[str, ...]]) -> Directives:
    return tuple(policy.items())


@cache
def _header(policy: Directives, extra: Directives) -> str:
    directives = {**dict(policy), **dict(extra)}
    return "; ".join(f"{name} {' '.join(sources)}" for name, sources in directives.items())
