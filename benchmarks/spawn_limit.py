"""What the machine can do: `/bin/true` by `subprocess.Popen`, from several processes at once.

The limit of benchmarks.throughput, and the program those processes run. It imports little, so that
they are as small as a worker; they begin on a word, so that nobody measures the start of Python.
"""

import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Final

COMMAND: Final = "/bin/true"


def spawns_per_s(processes: int, count: int) -> float:
    """Commands a second, started and waited for one after the other in each process."""
    share = count // processes
    argv = [sys.executable, "-I", "-S", __file__, str(share)]
    with ExitStack() as stack:
        children = [
            stack.enter_context(
                subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(processes)
        ]
        _hear(children, "ready")
        began = time.monotonic()
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        _hear(children, "done")
        return share * processes / (time.monotonic() - began)


def _hear(children: list[subprocess.Popen[str]], word: str) -> None:
    for child in children:
        assert child.stdout is not None
        if (said := child.stdout.readline().strip()) != word:
            raise AssertionError(f"{said!r} instead of {word}")


def main() -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(int(sys.argv[1])):
        with subprocess.Popen([COMMAND]) as process:
            process.wait()
    print("done", flush=True)


if __name__ == "__main__":
    main()
