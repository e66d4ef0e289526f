"""Plain HTTP against the object store, as a client with a signed URL has it."""

import http.client
from collections.abc import Iterable
from urllib.parse import urlsplit


def send(
    method: str,
    url: str,
    body: bytes | None = None,
    *,
    chunks: Iterable[bytes] | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers. `chunks` sends without announcing a length."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        given = {**(headers or {})}
        if chunks is not None:
            given["Transfer-Encoding"] = "chunked"
            connection.request(method, target, chunks, given, encode_chunked=True)
        else:
            connection.request(method, target, body, given)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, answer.read(), found
    finally:
        connection.close()


def put(url: str, body: bytes) -> int:
    return send("PUT", url, body)[0]


def get(url: str) -> bytes:
    status, body, _ = send("GET", url)
    assert status == 200, (status, body)
    return body
