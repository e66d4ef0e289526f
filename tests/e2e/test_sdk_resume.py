"""What the client does when a connection breaks: streams go on, submits are not taken twice."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import mitosis_client as mitosis

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]

Answer = Callable[[BaseHTTPRequestHandler, int], None]


@contextmanager
def server(answer: Answer) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server on loopback whose answer depends on how many requests came before."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(dict(self.headers.items()))
            answer(self, len(seen))
            self.close_connection = True

        do_GET = do_POST = handle_any  # noqa: N815 - names that the base class calls

        def log_message(self, *args: Any) -> None:
            """Nobody reads it."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_address[1]}", seen
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def event(number: int) -> bytes:
    return f'id: {number}\nevent: node.state\ndata: {{"n": {number}}}\n\n'.encode()


def test_a_broken_stream_goes_on_behind_its_last_event():
    def answer(request: BaseHTTPRequestHandler, count: int) -> None:
        if count == 3:
            request.send_response(204)
            request.end_headers()
            return
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        first = 1 if count == 1 else 3
        request.wfile.write(b"retry: 10\n\n" + event(first) + event(first + 1))
        request.wfile.write(b"id: 9\nda")  # cut in the middle of an event

    with server(answer) as (url, seen), mitosis.Client(url) as client:
        found = [one.data["n"] for one in client.events("/tasks/x/events")]
    assert found == [1, 2, 3, 4]
    assert [headers.get("Last-Event-ID") for headers in seen] == [None, "2", "4"]


def test_a_stream_that_is_refused_is_an_error():
    def answer(request: BaseHTTPRequestHandler, count: int) -> None:
        request.send_response(403)
        request.end_headers()
        request.wfile.write(b'{"msg": "no"}')

    with (
        server(answer) as (url, _),
        mitosis.Client(url) as client,
        pytest.raises(mitosis.PermissionDenied),
    ):
        next(client.events("/tasks/x/events"))


def test_a_submit_whose_answer_is_lost_is_sent_again_with_its_key():
    def answer(request: BaseHTTPRequestHandler, count: int) -> None:
        if count == 1:
            return  # taken, and the connection breaks before the answer
        body = json.dumps({"task_id": 1, "uuid": "u"}).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    task = mitosis.NewTask(args=["true"], group_name="g")
    with server(answer) as (url, seen), mitosis.Client(url, "token") as client:
        assert client.tasks.submit(task).uuid == "u"
    keys = [headers["Idempotency-Key"] for headers in seen]
    assert len(keys) == 2
    assert keys[0] == keys[1]


def test_a_cancel_whose_answer_is_lost_is_not_sent_again():
    def answer(request: BaseHTTPRequestHandler, count: int) -> None:
        """Breaks off."""

    with (
        server(answer) as (url, seen),
        mitosis.Client(url) as client,
        pytest.raises(mitosis.CoordinatorUnreachable),
    ):
        client.suites.cancel("u")
    assert len(seen) == 1


async def test_the_asynchronous_client_resumes_and_repeats_alike():
    def answer(request: BaseHTTPRequestHandler, count: int) -> None:
        if count == 2:
            request.send_response(204)
            request.end_headers()
            return
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.end_headers()
        request.wfile.write(b"retry: 10\n\n" + event(1))

    with server(answer) as (url, seen):
        async with mitosis.AsyncClient(url) as client:
            found = [one.data["n"] async for one in client.events("/tasks/x/events")]
    assert found == [1]
    assert seen[1]["Last-Event-ID"] == "1"
