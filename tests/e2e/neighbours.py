"""Well-behaved managers in a process of their own: what they measure is the server, not a test.

`python -m tests.e2e.neighbours` reads its managers from the first line of standard input, beats
until the second one and then prints when each answer came and how long it took.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from benchmarks.manager_fleet import Credential, Member, Samples, beating, connected

EVERY_S = 0.05


class Neighbours:
    """The process as its test sees it."""

    def __init__(self, url: str, credentials: Sequence[Credential]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.neighbours", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._tell(json.dumps([asdict(one) for one in credentials]))
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "connected\n"

    def stop(self) -> Samples:
        """What they have seen."""
        self._tell("enough")
        output, _ = self._process.communicate(timeout=30)
        assert self._process.returncode == 0
        return Samples([(at, took) for at, took in json.loads(output)])

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


@contextmanager
def neighbours(url: str, credentials: Sequence[Credential]) -> Iterator[Neighbours]:
    running = Neighbours(url, credentials)
    try:
        yield running
    finally:
        running.kill()


async def _beat(url: str) -> None:
    given = await asyncio.to_thread(sys.stdin.readline)
    members = [Member(Credential(**one), url) for one in json.loads(given)]
    async with connected(members):
        async with beating(members, EVERY_S) as samples:
            print("connected", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
        print(json.dumps(samples.taken))


if __name__ == "__main__":
    asyncio.run(_beat(sys.argv[1]))
