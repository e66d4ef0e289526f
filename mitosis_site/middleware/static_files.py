"""Static files straight from the source tree, without a thread per request that is not for one.

WhiteNoise finds and describes the files; this class only lets it live on the event loop and reads
a file in one go (the biggest one, Swagger's bundle, has 1.5 MB).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc] # WhiteNoise has no annotations
    sync_capable: ClassVar[bool] = True
    async_capable: ClassVar[bool] = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        super().__init__(get_response)
        self._on_loop = iscoroutinefunction(get_response)
        if self._on_loop:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        path = request.path_info
        found = self.find_file(path) if self.autorefresh else self.files.get(path)
        if found is None:
            response: HttpResponseBase | Awaitable[HttpResponseBase] = self.get_response(request)
            return response
        if self._on_loop:
            return asyncio.to_thread(_read, found, request)
        return _read(found, request)


def _read(found: StaticFile, request: HttpRequest) -> HttpResponse:
    described = found.get_response(request.method, request.META)
    content = b""
    if described.file is not None:
        with described.file as stream:
            content = stream.read()
    response = HttpResponse(content, status=int(described.status))
    del response.headers["Content-Type"]
    for name, value in described.headers:
        response.headers[name] = value
    return response
