"""What a worker waits for between two tasks, with prefetch and without, as its commands see it.

One worker of a whole stack runs commands that write down when they ran; the figure is the time from
one to the next. "limit" is the same command by Popen, one after the other: so what is above it went
into the result, the next task and the start of its command. Without prefetch the next task comes
from the coordinator's database, with it from the host.
"""

import subprocess
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

from benchmarks.live_stack import LiveStack, live_stack
from benchmarks.manager_fleet import p99, percentile
from benchmarks.measure import REPETITIONS, Figure, Row
from benchmarks.throughput import Suite, await_last, prepared_suite
from mitosis_protocol.limits import max_prefetch

WORKERS: Final = 1
TASKS: Final = 300
SKIPPED: Final = 10  # the first ones of an array wait for its submit
STAMP: Final = ("/bin/sh", "-c", 'date +%s%N >> "$0"')


def run() -> list[Row]:
    rows: list[Row] = []
    with live_stack(agents=1) as stack:
        for prefetch in (max_prefetch(WORKERS), 0):
            with prepared_suite(stack, WORKERS, prefetch) as suite:
                rows += _rows(stack, suite, f"prefetch {prefetch}" if prefetch else "no prefetch")
    return rows


def _rows(stack: LiveStack, suite: Suite, name: str) -> list[Row]:
    bare: list[list[float]] = []
    ours: list[list[float]] = []
    for _ in range(REPETITIONS):
        bare.append(_gaps(_run_bare))
        ours.append(_gaps(lambda path: _run_ours(stack, suite, path)))
    return [
        Row(
            f"worker: from command to command, {name}, {label}",
            Figure(tuple(share(one) for one in ours), "ms"),
            limit=Figure(tuple(share(one) for one in bare), "ms"),
        )
        for label, share in (("p50", lambda one: percentile(one, 0.5)), ("p99", p99))
    ]


def _gaps(run_commands: Callable[[Path], None]) -> list[float]:
    """Milliseconds from each command to the next."""
    with tempfile.TemporaryDirectory() as directory:
        # A command of the product runs as another user.
        Path(directory).chmod(0o755)
        path = Path(directory) / "times"
        path.touch()
        path.chmod(0o666)
        run_commands(path)
        at = sorted(int(line) for line in path.read_text().split())
    if len(at) != TASKS:
        raise AssertionError(f"{len(at)} of {TASKS} commands ran")
    return [(after - before) / 1e6 for before, after in pairwise(at[SKIPPED:])]


def _run_bare(path: Path) -> None:
    for _ in range(TASKS):
        subprocess.run([*STAMP, str(path)], check=True)


def _run_ours(stack: LiveStack, suite: Suite, path: Path) -> None:
    spec = {"args": [*STAMP, str(path)], "terminal_output": False}
    stack.submit_array(TASKS, suite_uuid=suite.uuid, task_spec=spec)
    await_last(stack, suite)
