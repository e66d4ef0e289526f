"""Times what the coordinator itself does about liveness, in a process with its environment.

Run by benchmarks.worker_heartbeats as `python -m benchmarks.liveness_inside`; reads what to do as
JSON from stdin and prints one JSON object of milliseconds. "Handling" is the whole application,
from the parsed request to the last byte of its answer; the checks are the very functions that
Celery beat and the standby call.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

import django

REPETITIONS: Final = 3


def main() -> None:
    plan = json.load(sys.stdin)
    taken = {"checks": _checks(plan["checks"]), "beats": asyncio.run(_beats(plan))}
    print(json.dumps(taken))


def _checks(times: int) -> dict[str, list[float]]:
    django.setup()
    # After the set-up: these modules define models.
    from tasks.periodic import reap  # noqa: PLC0415
    from workers.periodic import (  # noqa: PLC0415
        end_departures,
        mark_stale_workers,
        retire_silent_workers,
    )

    checks: dict[str, Callable[[], None]] = {
        "reap": reap,
        "mark stale": mark_stale_workers,
        "retire": retire_silent_workers,
        "end departures": end_departures,
    }
    taken: dict[str, list[float]] = {}
    for name, check in checks.items():
        check()  # connects, and does what there is to do: the rest finds a settled fleet
        taken[name] = [_milliseconds(check) for _ in range(times)]
    return taken


def _milliseconds(check: Callable[[], None]) -> float:
    began = time.perf_counter()
    check()
    return 1000 * (time.perf_counter() - began)


async def _beats(plan: dict[str, Any]) -> dict[str, list[float]]:
    """The median of each repetition by path."""
    from mitosis_site.asgi import application  # noqa: PLC0415

    taken: dict[str, list[float]] = {}
    async with _serving(application):
        for path, body in plan["beats"].items():
            data = b"" if body is None else json.dumps(body).encode()
            await _ask(application, path, plan["token"], data)
            taken[path] = []
            for _ in range(REPETITIONS):
                times = [
                    await _ask(application, path, plan["token"], data) for _ in range(plan["times"])
                ]
                taken[path].append(statistics.median(times))
    return taken


@asynccontextmanager
async def _serving(application: Any) -> AsyncIterator[None]:
    """Opened and closed as a server does it."""
    orders: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    answers: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    living = asyncio.create_task(application({"type": "lifespan"}, orders.get, answers.put))
    for word in ("startup", "shutdown"):
        orders.put_nowait({"type": f"lifespan.{word}"})
        answer = await answers.get()
        assert answer["type"] == f"lifespan.{word}.complete", answer
        if word == "startup":
            yield
    await living


async def _ask(application: Any, path: str, token: str, data: bytes) -> float:
    headers = [
        (b"host", b"127.0.0.1"),
        (b"content-length", str(len(data)).encode()),
        (b"authorization", f"Bearer {token}".encode()),
        *([(b"content-type", b"application/json")] if data else []),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    statuses: list[int] = []
    requests: list[MutableMapping[str, Any]] = [
        {"type": "http.request", "body": data, "more_body": False}
    ]

    async def receive() -> MutableMapping[str, Any]:
        if requests:
            return requests.pop()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    began = time.perf_counter()
    await application(scope, receive, send)
    taken = 1000 * (time.perf_counter() - began)
    assert statuses == [200], statuses
    return taken


if __name__ == "__main__":
    main()
