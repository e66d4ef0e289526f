"""The manager socket: a fleet of 1,000 on one process, and frames a second.

"limit" is an application that only echoes, on uvicorn; "peer" is our coordinator on daphne. All
three are served one after the other in the same run and get the same load.
"""

import asyncio
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import psutil
import psycopg

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.manager_fleet import Credential, Crew, Member, Samples, beating, connected, p99
from benchmarks.measure import REPETITIONS, Figure, Row
from benchmarks.raw_socket import RawSocket
from mitosis_stack.assembly import base_url
from mitosis_stack.coordinator import APPLICATION, AsgiServer
from mitosis_stack.ports import pick_free
from mitosis_stack.process import Child, spawn, wait_until

FLEET = 1000
WORKING = 4
BEAT_S = 30.0
WINDOW_S = 45.0  # three of them are longer than the lease of 120 s: a false expiry would show
PAUSE_S = 0.2  # a working manager takes 16 tasks at a time, five times a second
TASKS = 60_000
SETTLE_S = 3.0

PUMPS = 8
FRAMES = 3000  # of each pump in each repetition
WINDOW = 16
UNKNOWN = b'{"type":"nope","request_id":1}'  # decoded, refused, answered: no database in the way
# A benchmark is faster than managers are allowed to be.
POLICY = "socket_frames_per_s=10000000,socket_frames_burst=10000000,user_requests_per_s=100000"


@dataclass
class Figures:
    """What was measured on one server."""

    beat_ms: list[float]
    socket_kib: list[float]
    frames_per_s: list[float]
    frame_ms: list[float]
    notes: list[str]


def run() -> list[Row]:
    with live_stack() as stack, tempfile.TemporaryDirectory() as directory:
        found = {}
        for name, kind, application in (
            ("ours", "uvicorn", APPLICATION),
            ("peer", "daphne", APPLICATION),
            ("limit", "uvicorn", "benchmarks.bare_echo:application"),
        ):
            with extra_server(stack, Path(directory), kind, application) as (url, child):
                found[name] = asyncio.run(_measure(stack, url, child, is_echo=name == "limit"))
    return _rows(found["ours"], found["peer"], found["limit"])


def _rows(ours: Figures, peer: Figures, limit: Figures) -> list[Row]:
    def row(name: str, member: str, unit: str, goal: str = "") -> Row:
        mine, theirs, least = (
            Figure(tuple(getattr(one, member)), unit) for one in (ours, peer, limit)
        )
        return Row(f"sockets: {name}", mine, least, theirs, "daphne", goal, [])

    beat = row("p99 of a beat, 1,000 managers", "beat_ms", "ms", "under 250 ms")
    notes = [*ours.notes, *[f"on daphne: {note}" for note in peer.notes]]
    return [
        replace(beat, notes=notes),
        row("memory a socket", "socket_kib", "KiB"),
        row("frames a second", "frames_per_s", "frames/s"),
        row("p99 of a frame, 128 under way", "frame_ms", "ms"),
    ]


async def _measure(stack: LiveStack, url: str, child: Child, *, is_echo: bool) -> Figures:
    with httpx2.Client(base_url=url, timeout=60, headers=stack.http.headers) as http:
        if is_echo:
            fleet = [Credential(str(uuid.uuid4()), "nobody") for _ in range(FLEET)]
            members = [Member(one, url) for one in fleet]
            figures = await _hold_fleet(child, members, lambda: 0)
        else:
            fleet = enlist(http, FLEET)
            figures = await _employ_fleet(stack, http, child, [Member(one, url) for one in fleet])
    for _ in range(REPETITIONS):
        began = time.monotonic()
        pumps = [RawSocket(url, one.token) for one in fleet[:PUMPS]]
        took = await asyncio.gather(
            *[pump.pump(UNKNOWN, count=FRAMES, window=WINDOW) for pump in pumps]
        )
        figures.frames_per_s.append(PUMPS * FRAMES / (time.monotonic() - began))
        figures.frame_ms.append(1000 * p99([one for each in took for one in each]))
    return figures


async def _employ_fleet(
    stack: LiveStack, http: httpx2.Client, child: Child, members: list[Member]
) -> Figures:
    """The fleet beats while a crew of four works."""
    tag = uuid.uuid4().hex
    crew = Crew([Member(one, members[0].url) for one in enlist(http, WORKING, tag)],
                pause_s=PAUSE_S)  # fmt: skip
    suite = _suite(stack, http, tag)
    async with connected(crew.members):
        await crew.take_up(suite)
        working = Samples()
        async with crew.at_work(working, BEAT_S):
            began = time.monotonic()
            everybody = [*members, *crew.members]
            figures = await _hold_fleet(child, members, lambda: count_expired(stack, everybody))
            rate = crew.done / (time.monotonic() - began)
    _cancel(http, suite)
    figures.notes.append(
        f"nobody expired; four managers did {rate:.0f} tasks/s meanwhile,"
        f" {working.refused} of their requests were to be repeated"
    )
    return figures


async def _hold_fleet(
    child: Child, members: list[Member], count_strays: Callable[[], int]
) -> Figures:
    """Three windows on the same sockets; memory three times, too."""
    process = psutil.Process(child.pid)
    await asyncio.sleep(SETTLE_S)
    before = process.memory_info().rss
    figures = Figures([], [], [], [], [])
    async with connected(members), beating(members, BEAT_S) as samples:
        for _ in range(REPETITIONS):
            began = time.monotonic()
            await asyncio.sleep(WINDOW_S)
            figures.beat_ms.append(1000 * p99(samples.between(began, time.monotonic())))
            grown = process.memory_info().rss - before
            figures.socket_kib.append(grown / len(members) / 1024)
        strays = await asyncio.to_thread(count_strays)
    if strays:
        raise AssertionError(f"{strays} managers were expired although they beat in time")
    return figures


def enlist(http: httpx2.Client, count: int, *tags: str) -> list[Credential]:
    def one(_: int) -> Credential:
        body = {"tags": list(tags), "groups": []}
        answer = http.post("/managers", json=body).raise_for_status().json()
        return Credential(answer["manager_uuid"], answer["token"])

    with ThreadPoolExecutor(4) as threads:
        return list(threads.map(one, range(count)))


def _suite(stack: LiveStack, http: httpx2.Client, tag: str) -> str:
    body: dict[str, Any] = {
        "group_name": stack.group,
        "worker_schedule": {"worker_count": 16},
        "tags": [tag],
    }
    suite: str = http.post("/suites", json=body).raise_for_status().json()["uuid"]
    stack.submit_array(TASKS, suite_uuid=suite)
    return suite


def _cancel(http: httpx2.Client, suite: str) -> None:
    body = {"reason": "measured", "cancel_running_tasks": True}
    http.post(f"/suites/{suite}/cancel", json=body).raise_for_status()


def count_expired(stack: LiveStack, members: list[Member]) -> int:
    statement = (
        "SELECT count(*) FROM runners"
        " WHERE uuid = ANY (%s) AND (conn_state <> 1 OR session_epoch <> 1)"
    )
    with psycopg.connect(stack.database_url) as connection:
        row = connection.execute(statement, [[one.uuid for one in members]]).fetchone()
    return -1 if row is None else int(row[0])


@contextmanager
def extra_server(
    stack: LiveStack, directory: Path, kind: str, application: str
) -> Iterator[tuple[str, Child]]:
    """One more coordinator process on the stack's stores, or the echo in its place."""
    port = pick_free([kind], {})[kind]
    service = AsgiServer(
        port=port,
        log=directory / f"{kind}-{port}.log",
        env={**stack.environment, "MITOSIS_POLICY": POLICY, "PYTHONPATH": str(Path.cwd())},
        kind=kind,
        name=kind,
    )
    spec = service.spec()
    argv = tuple(application if word == APPLICATION else word for word in spec.argv)
    child = spawn(replace(spec, argv=argv))
    try:
        wait_until(service.is_ready, child=child, timeout_s=service.start_timeout_s)
        yield base_url(port), child
    finally:
        child.stop()
