"""What managers cost that have nothing to do: 1, 100 and 1,000 on one coordinator process.

They beat every 30 s and nothing else happens. Processor time is that of the coordinator process;
"limit" is the same process without anybody. Memory is what it grew by, per manager.
"""

import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx2
import psutil

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.manager_fleet import Member, beating, connected
from benchmarks.measure import REPETITIONS, Figure, Row
from benchmarks.sockets import BEAT_S, SETTLE_S, count_expired, enlist, extra_server
from mitosis_stack.coordinator import APPLICATION
from mitosis_stack.process import Child

COUNTS: Final = (1, 100, 1_000)
ALONE_S: Final = 10.0
WINDOW_S: Final = 1.5 * BEAT_S  # three are longer than the lease of 120 s: an expiry would show
GOALS: Final = {1_000: ("under 5 %", "under 100 KB")}


@dataclass
class Cost:
    """One value per window."""

    alone: list[float] = field(default_factory=list)
    percent: list[float] = field(default_factory=list)
    kilobytes: list[float] = field(default_factory=list)


def run() -> list[Row]:
    rows: list[Row] = []
    with live_stack() as stack, tempfile.TemporaryDirectory() as directory:
        for count in COUNTS:
            # A new process each time: memory that one fleet left behind would hide the next one's.
            with extra_server(stack, Path(directory), "uvicorn", APPLICATION) as (url, child):
                cost = asyncio.run(_hold(stack, url, child, count))
            rows += _rows(count, cost)
    return rows


def _rows(count: int, cost: Cost) -> list[Row]:
    noun = "manager" if count == 1 else "managers"
    processor, memory = GOALS.get(count, ("", ""))
    return [
        Row(
            f"idle: CPU with {count:,} {noun}",
            Figure(tuple(cost.percent), "% of a core"),
            limit=Figure(tuple(cost.alone), "% of a core"),
            goal=processor,
        ),
        Row(
            f"idle: memory each of {count:,} {noun}", Figure(tuple(cost.kilobytes), "KB"),
            goal=memory,
        ),
    ]  # fmt: skip


async def _hold(stack: LiveStack, url: str, child: Child, count: int) -> Cost:
    process = psutil.Process(child.pid)
    with httpx2.Client(base_url=url, timeout=60, headers=stack.http.headers) as http:
        members = [Member(one, url) for one in enlist(http, count)]
    await asyncio.sleep(SETTLE_S)
    cost = Cost()
    for _ in range(REPETITIONS):
        cost.alone.append(await _percent(process, ALONE_S))
    before = process.memory_info().rss
    async with connected(members), beating(members, BEAT_S):
        for _ in range(REPETITIONS):
            cost.percent.append(await _percent(process, WINDOW_S))
            cost.kilobytes.append((process.memory_info().rss - before) / count / 1000)
        expired = await asyncio.to_thread(count_expired, stack, members)
    if expired:
        raise AssertionError(f"{expired} managers were expired although they beat in time")
    return cost


async def _percent(process: psutil.Process, seconds: float) -> float:
    before, began = _cpu_s(process), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (_cpu_s(process) - before) / (time.monotonic() - began)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return round(times.user + times.system, 2)  # the system counts in hundredths
