"""`make bench`: runs all benchmarks, or those whose names are given, and prints one table."""

import sys
from collections.abc import Callable

from benchmarks import (
    command_line,
    console,
    coordinator,
    growth,
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
    "sockets": sockets.run,
    "throughput": throughput.run,
    "workers": worker_start.run,
    "heartbeats": worker_heartbeats.run,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"Unknown benchmark {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
        return 2
    rows: list[Row] = []
    for name in names or BENCHMARKS:
        print(f"running {name}", flush=True)
        rows += BENCHMARKS[name]()
    print_table(rows)
    print(f"written to {write_results(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
