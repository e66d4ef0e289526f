"""What the client knows, kept outside the system: asked, acknowledged, and seen by the disk.

The client's lines are JSON in one file, each written before the next request is made. Commands
append lines of their own to another file; what stands there did run, whatever anybody says.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any


@dataclass(frozen=True)
class Acknowledged:
    """A task the coordinator has promised."""

    uuid: str
    label: str
    kind: str
    suite: str | None = None


@dataclass
class Execution:
    """One run of one attempt, from the lines its command wrote: S, any number of T, and E."""

    uuid: str
    attempt: int
    pid: int
    began: float | None = None
    seen: float | None = None
    status: int | None = None


@dataclass
class History:
    """Written by the load, read by the invariants."""

    file: Path
    tasks: dict[str, Acknowledged] = field(default_factory=dict)
    suites: dict[str, str] = field(default_factory=dict)  # uuid: on_partition
    cancelled: set[str] = field(default_factory=set)  # tasks whose cancel was acknowledged
    cancelled_suites: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    def note(self, op: str, **facts: Any) -> None:
        with self._lock, self.file.open("a") as out:
            out.write(json.dumps({"op": op, **facts}) + "\n")

    def acknowledge(self, tasks: Iterable[Acknowledged]) -> None:
        given = list(tasks)
        with self._lock:
            self.tasks.update({task.uuid: task for task in given})
        self.note("acknowledged", tasks=[[one.uuid, one.label, one.kind] for one in given])

    def snapshot(self) -> dict[str, Acknowledged]:
        with self._lock:
            return dict(self.tasks)


class Evidence:
    """What commands wrote: each `read` takes in the lines that are new since the last one.

    Every line is `S|T|E uuid attempt pid time [status]`. One that is not ended yet is left for the
    next time.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_bytes = 0
        self._runs: dict[tuple[str, int, int], Execution] = {}

    def read(self) -> list[Execution]:
        with self._file.open("rb") as opened:
            opened.seek(self._read_bytes)
            new = opened.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.decode().splitlines():
            self._take_in(line)
        return list(self._runs.values())

    def _take_in(self, line: str) -> None:
        words = line.split(" ")
        if len(words) < 5 or words[0] not in "STE":
            return
        key = (words[1], int(words[2]), int(words[3]))
        run = self._runs.setdefault(key, Execution(*key))
        at = float(words[4]) if words[4] != "-" else None
        if words[0] == "S":
            run.began = at
        run.seen = at
        if words[0] == "E":
            run.status = int(words[5])


def by_task(runs: Iterable[Execution]) -> dict[str, list[Execution]]:
    grouped: dict[str, list[Execution]] = defaultdict(list)
    for run in runs:
        grouped[run.uuid].append(run)
    return grouped
