"""The coordinator alone: submit, claims and reports of simulated agents over real sockets.

No command runs. "limit" is the raw life of a task in psycopg with the same batch, on four
connections (on one for single tasks), in the same run and database.
"""

import asyncio
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.manager_fleet import Crew, Member, Samples, connected, report
from benchmarks.measure import REPETITIONS, Figure, Row
from benchmarks.raw_life import lives_per_s
from benchmarks.sockets import enlist, extra_server
from mitosis_stack.coordinator import APPLICATION

PATIENCE_S: Final = 120.0
PAUSE_S: Final = 0.002  # after an empty answer: others hold what is left


@dataclass(frozen=True)
class Load:
    """`in_flight` requests of each socket at a time, each about `batch` tasks."""

    batch: int
    sockets: int
    in_flight: int
    tasks: int

    @property
    def goal(self) -> str:
        goals = {(64, 8): "at least 0.5x", (1, 8): "at least 5x one by one"}
        return goals.get((self.batch, self.sockets), "")


LOADS: Final = (
    Load(1, 1, 64, 600),
    Load(1, 8, 64, 1_200),
    Load(1, 50, 8, 1_200),
    Load(16, 1, 4, 2_000),
    Load(16, 8, 4, 4_000),
    Load(16, 50, 2, 4_000),
    Load(64, 1, 2, 5_000),
    Load(64, 8, 2, 10_000),
    Load(64, 50, 1, 10_000),
)


def run() -> list[Row]:
    with (
        live_stack() as stack,
        tempfile.TemporaryDirectory() as directory,
        extra_server(stack, Path(directory), "uvicorn", APPLICATION) as (url, _),
    ):
        return [_row(stack, url, load) for load in LOADS]


def _row(stack: LiveStack, url: str, load: Load) -> Row:
    ours, limit = asyncio.run(_measure(stack, url, load))
    noun = "socket" if load.sockets == 1 else "sockets"
    return Row(
        f"coordinator: batches of {load.batch}, {load.sockets} {noun}",
        Figure(tuple(ours), "tasks a second"),
        limit=Figure(tuple(limit), "tasks a second"),
        goal=load.goal,
    )


async def _measure(stack: LiveStack, url: str, load: Load) -> tuple[list[float], list[float]]:
    tag = uuid.uuid4().hex
    with httpx2.Client(base_url=url, headers=stack.http.headers, timeout=120) as http:
        members = [Member(one, url) for one in enlist(http, load.sockets, tag)]
        suite = _make_suite(stack, http, tag)
    ours: list[float] = []
    limit: list[float] = []
    async with connected(members):
        crew = Crew(members, pause_s=0.0)
        # So many that every manager is wanted.
        stack.submit_array(load.tasks, suite_uuid=suite)
        await crew.take_up(suite)
        await _drain(members, load, load.tasks)
        for _ in range(REPETITIONS):
            limit.append(
                await asyncio.to_thread(
                    lives_per_s,
                    stack.database_url,
                    connections=1 if load.batch == 1 else 4,
                    batch=load.batch,
                    count=load.tasks,
                )
            )
            for member in members:
                await member.beat("Executing")
            began = time.monotonic()
            await asyncio.to_thread(stack.submit_array, load.tasks, suite_uuid=suite)
            await _drain(members, load, load.tasks)
            ours.append(load.tasks / (time.monotonic() - began))
    stack.post(f"/suites/{suite}/cancel", {"reason": "measured"})
    return ours, limit


def _make_suite(stack: LiveStack, http: httpx2.Client, tag: str) -> str:
    body: dict[str, Any] = {
        "group_name": stack.group,
        "worker_schedule": {"worker_count": 16},
        "tags": [tag],
    }
    made: str = http.post("/suites", json=body).raise_for_status().json()["uuid"]
    return made


async def _drain(members: list[Member], load: Load, count: int) -> None:
    """Until so many tasks are committed."""
    left = count
    samples = Samples()

    async def work(member: Member) -> None:
        nonlocal left
        while left > 0:
            answer = await member.request("fetch_tasks", max_tasks=load.batch)
            if answer["type"] == "error":
                samples.refuse(answer)
            attempts = {task["task_id"] for task in answer.get("tasks", [])}
            if not attempts:
                await asyncio.sleep(PAUSE_S)
            while attempts:
                settled = await report(member, attempts, samples)
                left -= len(settled)
                attempts -= settled

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*[work(one) for one in members for _ in range(load.in_flight)])
