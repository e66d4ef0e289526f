"""`/workers` itself: users register there (POST), workers leave there (DELETE)."""

from typing import cast

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from workers.api.endpoint import route
from workers.api.leaving import unregister
from workers.api.registration import RegisterView
from workers.api.worker_docs import RootDocs

_register = sync_to_async(RegisterView.as_view())
_leave = route(RootDocs, delete=unregister)


@csrf_exempt
async def workers(request: HttpRequest) -> HttpResponse:
    """By method, because Django's router knows paths only."""
    if request.method == "DELETE":
        return await _leave(request)
    return cast("HttpResponse", await _register(request))


workers.cls = RootDocs  # type: ignore[attr-defined]
workers.initkwargs = {}  # type: ignore[attr-defined]
