"""`make bench`: runs all benchmarks, or those whose names are given, and prints one table.

A benchmark that fails is named with its reason; the others still run, all figures are written,
and the exit status is 1.
"""

import sys
import traceback
from collections.abc import Callable, Mapping

from benchmarks import (
    against_peers,
    artifacts,
    command_gap,
    command_line,
    console,
    coordinator,
    growth,
    idle_managers,
    ipc_round_trip,
    latencies,
    slot_run,
    sockets,
    stack_start,
    submit,
    throughput,
    worker_heartbeats,
    worker_start,
)
from benchmarks.measure import Row
from benchmarks.report import print_table, write_results


def _throughput() -> list[Row]:
    return [*against_peers.run(), *throughput.run()]


BENCHMARKS: dict[str, Callable[[], list[Row]]] = {
    "stack": stack_start.run,
    "cli": command_line.run,
    "coordinator": coordinator.run,
    "submit": submit.run,
    "growth": growth.run,
    "console": console.run,
    "ipc": ipc_round_trip.run,
    "slot": slot_run.run,
    "latencies": latencies.run,
    "gap": command_gap.run,
    "sockets": sockets.run,
    "managers": idle_managers.run,
    "throughput": _throughput,
    "artifacts": artifacts.run,
    "workers": worker_start.run,
    "heartbeats": worker_heartbeats.run,
}

# Parts of others, which only run when they are named.
PARTS: dict[str, Callable[[], list[Row]]] = {"peers": against_peers.run}


def main(names: list[str]) -> int:
    known = {**BENCHMARKS, **PARTS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"Unknown benchmark {', '.join(unknown)}; there are: {', '.join(known)}")
        return 2
    return run_all({name: known[name] for name in names or BENCHMARKS})


def run_all(chosen: Mapping[str, Callable[[], list[Row]]]) -> int:
    rows: list[Row] = []
    failures: dict[str, str] = {}
    try:
        for name, run in chosen.items():
            print(f"running {name}", flush=True)
            try:
                rows += run()
            except Exception as error:  # noqa: BLE001 - the other benchmarks have to run
                traceback.print_exc()
                failures[name] = f"{type(error).__name__}: {error}"
    finally:
        # Also when somebody has had enough: an hour of figures is not thrown away.
        print_table(rows)
        for name, reason in failures.items():
            print(f"failed: {name}: {reason}")
        print(f"written to {write_results(rows, failures)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
