"""How long the embedded stack takes to start, at first and later, and what it costs when idle."""

import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.measure import Figure, Row
from mitosis_stack.commands import down, status, up_detached
from mitosis_stack.settings import StackSettings, read_settings

# A start goes on behind the scenes: caches fill, SeaweedFS makes its first volumes.
SETTLE_S = 25.0
# Long enough for every periodic job but the hourly ones.
IDLE_WINDOW_S = 60.0


def run() -> list[Row]:
    first: list[float] = []
    again: list[float] = []
    memory: list[float] = []
    cpu: list[float] = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as directory:
            settings = read_settings(
                data_dir=Path(directory) / "data", port=None, agents=0, asgi_server="uvicorn"
            )
            first.append(_cycle(settings))
            again.append(_start(settings))
            memory.append(_resident_mb(settings))
            cpu.append(_idle_cpu_percent(settings))
            down(settings.data_dir, lambda _line: None)
    return [
        Row("stack: first start", Figure(tuple(first), "s")),
        Row("stack: later start", Figure(tuple(again), "s"), goal="under 10 s"),
        Row("stack: memory when idle", Figure(tuple(memory), "MB"), goal="under 700 MB"),
        Row("stack: CPU when idle", Figure(tuple(cpu), "% of a core"), goal="under 3 %"),
    ]


def _cycle(settings: StackSettings) -> float:
    took = _start(settings)
    down(settings.data_dir, lambda _line: None)
    return took


def _start(settings: StackSettings) -> float:
    began = time.monotonic()
    up_detached(settings, lambda _line: None, lambda _credentials: None)
    return time.monotonic() - began


def _processes(settings: StackSettings) -> list[psutil.Process]:
    state = status(settings.data_dir).state
    if state is None:
        return []
    supervisor = psutil.Process(state.pid)
    return [supervisor, *supervisor.children(recursive=True)]


def _resident_mb(settings: StackSettings) -> float:
    """Proportional set size: shared pages count once, whoever maps them."""
    return sum(p.memory_full_info().pss for p in _processes(settings)) / 1e6


def _idle_cpu_percent(settings: StackSettings) -> float:
    time.sleep(SETTLE_S)
    before = _cpu_s(settings)
    time.sleep(IDLE_WINDOW_S)
    return 100 * (_cpu_s(settings) - before) / IDLE_WINDOW_S


def _cpu_s(settings: StackSettings) -> float:
    """Of everything that runs, and of what came and went: that is in its parent's account."""
    return sum(sum(process.cpu_times()[:4]) for process in _processes(settings))
