"""Which faultpoints have fired: parts say so in their logs before they are hurt.

Workers of an agent write to its log, so what was done to them is known as well.
"""

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_MARK: Final = b'"fault.injected"'


class Firings:
    """Counts by `point action`; each `read` goes on where the last one stopped."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self._read_bytes: dict[Path, int] = {}

    def read(self, logs: Iterable[Path]) -> Counter[str]:
        for log in logs:
            self._read_log(log)
        return self.counted

    def points(self) -> set[str]:
        return {name.split(" ")[0] for name in self.counted}

    def _read_log(self, log: Path) -> None:
        if not log.exists():
            return
        begun = self._read_bytes.get(log, 0)
        if log.stat().st_size < begun:
            begun = 0  # it was set aside, and a new one has begun
        with log.open("rb") as opened:
            opened.seek(begun)
            new = opened.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read_bytes[log] = begun + len(whole)
        for line in whole.splitlines():
            if _MARK in line:
                said = json.loads(line[line.index(b'{"event": ' + _MARK) :])
                self.counted[f"{said['point']} {said['action']}"] += 1
