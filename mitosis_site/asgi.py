"""ASGI entry point: HTTP to Django, WebSockets to websocket.routing, lifespan to the runtime.

Served by uvicorn (`--lifespan on`) or daphne; both run the same application.
"""

from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.urls import re_path

from mitosis_site.env import default_settings

default_settings("mitosis_site.settings.prod")
django_application = get_asgi_application()

# These import models, so Django has to be set up first.
from mitosis_site.body_limit import BodyLimit  # noqa: E402
from mitosis_site.runtime import Receive, Runtime, Scope, Send  # noqa: E402
from websocket.routing import websocket_urlpatterns  # noqa: E402

# Submits of thousands of tasks go here; each view narrows the limit to what it takes.
BULK_PREFIXES = ("/tasks", "/suites")


def body_limit_of(path: str) -> int:
    """Bytes that a request to this path may carry before anybody looks at it."""
    policy = settings.MITOSIS
    return policy.bulk_body_bytes if path.startswith(BULK_PREFIXES) else policy.body_bytes


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """An unknown path: the handshake is answered with 403 and nothing is accepted."""
    await receive()
    await send({"type": "websocket.close"})


# Channels routes ASGI applications through Django's patterns, which are annotated for views.
_everything_else = re_path("", refuse_websocket)  # type: ignore[arg-type]

application = Runtime(
    ProtocolTypeRouter(
        {
            "http": BodyLimit(django_application, body_limit_of),
            "websocket": URLRouter([*websocket_urlpatterns, _everything_else]),
        }
    )
)
