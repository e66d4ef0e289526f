"""The console on a grown database: how long each page takes, and what open pages cost.

Grown means 1,000 managers, 1,000 suites (100 of them live, some at work) and 1,000,000 archived
tasks, one in fifty failed. Pages are asked for with a session, over HTTP, one after the other; the
figure is the worst of ten. Then 50 streams are open at once, spread over all kinds of pages, while
tasks of the watched suites end; the figure is what the web process and PostgreSQL use more than
without the streams, in percent of one core. Both as an operator, who sees everything, and pages
also as a member of one of 20 groups.
"""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx2
import psutil
import psycopg

from benchmarks.console_world import Grown, grow, nudge
from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.measure import Figure, Row

REPETITIONS: Final = 10
STREAMS: Final = 50
IDLE_S: Final = 15.0
PATIENCE_S: Final = 60.0  # until every stream has spoken
WARM_UP_S: Final = 8.0
WATCHED_S: Final = 30.0
PAGE_GOAL: Final = "at most 500 ms"
LIVE_GOAL: Final = "at most 20 % of a core"


@dataclass(frozen=True)
class Eye:
    """Somebody who looks, by session cookie."""

    name: str
    http: httpx2.Client


def run() -> list[Row]:
    with live_stack() as stack:
        grown = grow(stack)
        rows: list[Row] = []
        for name, user in (("operator", stack.group), ("member", grown.member)):
            eye = Eye(name, _logged_in(stack, user, grown.password))
            for page, path in _pages(grown).items():
                figure = Figure(tuple(_ask(eye, path) for _ in range(REPETITIONS)), "ms")
                worst = Figure((max(figure.values),), "ms")
                note = f"median {figure.median:.0f} ms"
                print(f"  {page} as {name}: {note}, worst {worst.median:.0f} ms", flush=True)
                rows.append(Row(f"console: {page} as {name}", worst, goal=PAGE_GOAL, notes=[note]))
            if name == "operator":
                idle, live = asyncio.run(_watch(stack, grown, dict(eye.http.cookies)))
                cost = Figure((max(0.0, live - idle),), "% of a core")
                note = f"{live:.1f} % with them, {idle:.1f} % without"
                name_ = f"console: {STREAMS} open pages"
                rows.append(Row(name_, cost, goal=LIVE_GOAL, notes=[note]))
            eye.http.close()
        return rows


def _logged_in(stack: LiveStack, user: str, password: str) -> httpx2.Client:
    http = httpx2.Client(base_url=stack.http.base_url, timeout=60)
    form = http.get("/console/login").raise_for_status().text
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    assert token is not None
    body = {"csrfmiddlewaretoken": token[1], "username": user, "password": password}
    answer = http.post("/console/login", data=body)
    assert answer.status_code == 302, answer.text
    return http


def _pages(grown: Grown) -> dict[str, str]:
    return {
        "overview": "/console/",
        "suites": "/console/suites",
        "suites by name": "/console/suites?q=sweep+99",
        "suite": f"/console/suites/{grown.suites[0]}",
        "suite explained": f"/console/suites/{grown.suites[0]}/explain",
        "tasks": "/console/tasks",
        "tasks, far back": f"/console/tasks?before={grown.middle_task_id}",
        "tasks by a rare state": "/console/tasks?state=cancelled",
        "tasks by label": "/console/tasks?label=n7",
        "task": f"/console/tasks/{grown.task}",
        "failures": "/console/failures",
        "failures of 30 days": "/console/failures?window=30d",
        "managers": "/console/managers",
        "manager": f"/console/managers/{grown.managers[0]}",
        "manager's series": f"/console/managers/{grown.managers[0]}/series?window=24h",
        "access": "/console/access",
    }


def _ask(eye: Eye, path: str) -> float:
    began = time.monotonic()
    answer = eye.http.get(path)
    took = 1000 * (time.monotonic() - began)
    assert answer.status_code == 200, (eye.name, path, answer.status_code, answer.text[:300])
    return took


def _streams(grown: Grown) -> Sequence[str]:
    """As a team would have them open: some on the same page, most on pages of their own."""
    return [
        *["/console/live"] * 10,
        *["/console/suites/live"] * 5,
        *["/console/tasks/live"] * 5,
        *["/console/failures/live"] * 3,
        *["/console/managers/live"] * 5,
        *(f"/console/suites/{uuid}/live" for uuid in grown.suites[:12]),
        *(f"/console/managers/{uuid}/live" for uuid in grown.managers[:8]),
        *[f"/console/tasks/{grown.task}/live"] * 2,
    ]


async def _watch(stack: LiveStack, grown: Grown, cookies: dict[str, str]) -> tuple[float, float]:
    """Percent of a core without open pages and with them, while the suites have news."""
    paths = _streams(grown)
    assert len(paths) == STREAMS
    nudger = asyncio.create_task(_nudge_on(stack, grown))
    limits = httpx2.Limits(max_connections=STREAMS + 1)
    async with httpx2.AsyncClient(
        base_url=stack.http.base_url, cookies=cookies, timeout=None, limits=limits
    ) as http:
        idle = await _percent(stack, IDLE_S)
        heard = [0] * STREAMS
        readers = [
            asyncio.create_task(_read(http, path, heard, place)) for place, path in enumerate(paths)
        ]
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not all(heard):  # noqa: ASYNC110 - readers count, they tell nobody
                    await asyncio.sleep(0.5)
            await asyncio.sleep(WARM_UP_S)
            live = await _percent(stack, WATCHED_S)
        finally:
            for task in (*readers, nudger):
                task.cancel()
            await asyncio.gather(*readers, nudger, return_exceptions=True)
    return idle, live


async def _percent(stack: LiveStack, seconds: float) -> float:
    before, began = _cpu_s(stack), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (_cpu_s(stack) - before) / (time.monotonic() - began)


async def _read(http: httpx2.AsyncClient, path: str, heard: list[int], place: int) -> None:
    async with http.stream("GET", path) as answer:
        assert answer.status_code == 200, (path, answer.status_code)
        async for piece in answer.aiter_bytes():
            heard[place] += piece.count(b"event: region")


async def _nudge_on(stack: LiveStack, grown: Grown) -> None:
    """Every second the watched suites get news, as when tasks of each end."""
    async with await psycopg.AsyncConnection.connect(
        stack.database_url, autocommit=True
    ) as connection:
        while True:
            await nudge(connection, grown)
            await asyncio.sleep(1.0)


def _cpu_s(stack: LiveStack) -> float:
    """Of the web process and the database's processes; the load's own is apart."""
    total = 0.0
    for process in (stack.supervisor, *stack.supervisor.children(recursive=True)):
        try:
            words = process.cmdline()
            if process.pid == stack.web_pid or any("postgres" in word for word in words[:1]):
                times = process.cpu_times()
                total += times.user + times.system
        except psutil.Error:
            continue
    return total
