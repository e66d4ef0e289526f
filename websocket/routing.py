"""WebSocket routes; mitosis_site.asgi serves them. Every route checks a token before the accept."""

from django.urls import URLPattern, URLResolver, path

from mitosis_protocol.enums import TokenKind
from websocket.auth import BearerRequired, CertificateRequired
from websocket.consumer import RunnerConsumer
from websocket.presence import PRESENCE
from websocket.worker_presence import WORKER_PRESENCE

_managers = BearerRequired(RunnerConsumer(PRESENCE), TokenKind.MANAGER)
_workers = BearerRequired(CertificateRequired(RunnerConsumer(WORKER_PRESENCE)), TokenKind.DIRECT)

# Channels routes ASGI applications through Django's patterns, which are annotated for views.
websocket_urlpatterns: list[URLPattern | URLResolver] = [
    path("ws/managers", _managers),  # type: ignore[arg-type]
    path("ws/workers", _workers),  # type: ignore[arg-type]
]
