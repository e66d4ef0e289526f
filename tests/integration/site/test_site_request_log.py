"""What a request leaves in the log: one line, its id, no query string; a traceback for a bug."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from core.problem import server_error

CANARY = "canary-90fe"


def answer(request: HttpRequest, status: int) -> HttpResponse:
    return HttpResponse(status=status)


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError(f"a bug with token={CANARY}")


urlpatterns = [path("answer/<int:status>", answer), path("broken", broken)]
handler500 = server_error


@pytest.fixture
def log(settings) -> Iterator[io.StringIO]:
    settings.ROOT_URLCONF = __name__
    ours = [item for item in logging.getLogger().handlers if type(item) is logging.StreamHandler]
    [handler] = ours
    stream = io.StringIO()
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def events(log: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("status", "level"), [(404, "info"), (500, "error"), (503, "warning"), (429, "info")]
)
def test_a_refused_request_is_one_line(status: int, level: str, client: Client, log: io.StringIO):
    response = client.get(f"/answer/{status}", {"token": CANARY})
    [event] = events(log)
    assert (event["event"], event["level"]) == ("http.request", level)
    assert (event["status"], event["path"]) == (status, f"/answer/{status}")
    assert event["request_id"] == response.headers["X-Request-ID"]
    assert CANARY not in log.getvalue()


def test_a_request_that_went_well_leaves_no_line(client: Client, log: io.StringIO):
    client.get("/answer/200")
    assert log.getvalue() == ""


async def test_a_bug_leaves_its_traceback_under_the_same_id_and_no_secret(log: io.StringIO):
    client = AsyncClient(raise_request_exception=False)
    response = await client.get("/broken")
    assert response.status_code == 500
    assert response.json()["code"] == "internal"
    traceback, request = events(log)
    assert "RuntimeError" in str(traceback["exception"])
    assert traceback["request_id"] == request["request_id"] == response.headers["X-Request-ID"]
    assert CANARY not in log.getvalue()
