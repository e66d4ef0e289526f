"""`GET /metrics`: this process's counters, and the gauges of the installation.

Closed by default. It tells group names and loads, so it is for staff (token or session) and for
whoever knows METRICS_TOKEN. A loopback address opens nothing: behind a proxy all callers have one.
"""

import hmac
from typing import Final

from django.conf import settings
from django.http import HttpResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.views import APIView
from typing_extensions import override

from accounts.authentication import USER_AUTHENTICATION
from accounts.guards import AdminRequired
from core.counters import REGISTRY
from mitosis_site.metrics.fleet import FLEET
from mitosis_site.metrics.process import register_process

register_process()


class Scraper:
    """Whoever has the METRICS_TOKEN; no user of ours."""

    is_authenticated: Final = True


class MetricsTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <METRICS_TOKEN>`; anything else is left to the users' tokens."""

    @override
    def authenticate(self, request: Request) -> tuple[Scraper, None] | None:
        token = settings.METRICS_TOKEN
        given = str(request.META.get("HTTP_AUTHORIZATION", ""))
        if not token or not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            return None
        return Scraper(), None

    @override
    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="mitosis"'


class ScrapeAllowed(AdminRequired):
    """The scraper, or staff."""

    @override
    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.user, Scraper) or super().has_permission(request, view)


class MetricsView(APIView):
    authentication_classes = (MetricsTokenAuthentication, *USER_AUTHENTICATION)
    permission_classes = (ScrapeAllowed,)
    throttle_classes = ()  # a scrape costs no more than one read of the database every few seconds
    schema = None  # text for one program, no part of the API

    def get(self, request: Request) -> HttpResponse:
        fleet = FLEET.page(max_age_s=settings.MITOSIS.scrape_cache_s)
        return HttpResponse(
            generate_latest(REGISTRY) + fleet,
            content_type=CONTENT_TYPE_LATEST,
            headers={"Cache-Control": "no-store"},
        )
