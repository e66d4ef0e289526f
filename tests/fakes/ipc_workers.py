"""Worker processes for IPC tests, forked by a process that has opened nothing, as the pool's are.

`python -m tests.fakes.ipc_workers <fd>` is that process; IpcWorkers starts it and asks it for
workers, each of which runs one of the scripts below against its endpoint.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from mitosis_protocol.ipc import (
    Done,
    FetchReply,
    FetchTask,
    FinishTask,
    Ready,
    SubmitFollowUp,
    UploadReply,
)
from nodeagent.errors import WorkerRemoved
from nodeagent.ipc.client import IpcClient, Published
from nodeagent.ipc.server import WorkerEndpoint
from nodeagent.ipc.transport import open_client, preload
from nodeagent.worker.process_tree import signal_on_parent_death

REPO = Path(__file__).parents[2]


class Job(msgspec.Struct):
    """What a forked worker does: a script, where it writes its words, and one number for it."""

    endpoint: WorkerEndpoint
    script: str
    diary: str
    number: int = 0


class Worker:
    """One forked worker, known by its pid (a child of the fork server, which reaps it)."""

    def __init__(self, pid: int, diary: Path) -> None:
        self.pid = pid
        self.diary = diary

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self, within_s: float = 30) -> None:
        deadline = time.monotonic() + within_s
        while Path(f"/proc/{self.pid}").exists():
            assert time.monotonic() < deadline, f"worker {self.pid} lives"
            time.sleep(0.002)

    def words(self) -> list[str]:
        return self.diary.read_text().splitlines() if self.diary.exists() else []


class IpcWorkers:
    """The test's side of the fork server."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fakes.ipc_workers", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=REPO,
            )

    def start(self, diary: Path, endpoint: WorkerEndpoint, script: str, number: int = 0) -> Worker:
        job = Job(endpoint, script, str(diary), number)
        fds = [] if endpoint.fd is None else [endpoint.fd]
        socket.send_fds(self._ours, [msgspec.json.encode(job)], fds)
        return Worker(int(self._ours.recv(16)), diary)

    def close(self) -> None:
        self._ours.close()
        self._process.wait(30)


async def _fetch(client: IpcClient, say: Callable[[str], None]) -> FetchReply:
    reply = await client.ask("fetch", FetchTask(request_id=client.next_id()))
    assert isinstance(reply, FetchReply)
    say("over" if reply.item is None else f"took {reply.item.task.task_id}")
    return reply


async def _ready(client: IpcClient) -> None:
    await client.ask("heartbeat", Ready(request_id=client.next_id(), pid=os.getpid()))


async def work(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Fetch and finish until told that it is over."""
    await _ready(client)
    while (reply := await _fetch(client, say)).item is not None:
        attempt_id = reply.item.task.task_id
        answer = await client.ask(
            "report",
            FinishTask(request_id=client.next_id(), attempt_id=attempt_id, exit_status=0),
        )
        say(f"{type(answer).__name__.lower()} {attempt_id}")


async def chain(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Finish what it has and take whatever comes with the answers; says what it was given."""
    await _ready(client)
    item = (await _fetch(client, say)).item
    in_hand = [] if item is None else [item.task.task_id]
    while in_hand:
        answer = await client.ask("report", _finish(client, in_hand.pop(0)))
        assert isinstance(answer, Done)
        came = [one.task.task_id for one in answer.next_items]
        in_hand += came
        say(f"along {' '.join(map(str, came))}" if came else "nothing")


async def go_on(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """As chain, but with one ahead it looks for the answer after a while; tells who woke it."""
    await _ready(client)
    item = (await _fetch(client, say)).item
    in_hand = [] if item is None else [item.task.task_id]
    while in_hand:
        finish = _finish(client, in_hand.pop(0), is_patient=bool(in_hand))
        answer = client.post("report", finish)
        await asyncio.wait({answer}, timeout=0.3)
        word = "rung" if answer.done() else "looked"
        while not answer.done():
            client.look()
            await asyncio.sleep(0.001)
        done = answer.result()
        assert isinstance(done, Done)
        in_hand += [one.task.task_id for one in done.next_items]
        say(f"{word} {finish.attempt_id}")


def _finish(client: IpcClient, attempt_id: int, *, is_patient: bool = False) -> FinishTask:
    return FinishTask(
        request_id=client.next_id(),
        attempt_id=attempt_id,
        exit_status=0,
        wants_next=True,
        is_patient=is_patient,
    )


async def forge(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Finish an attempt that somebody else holds."""
    await _ready(client)
    answer = await client.ask(
        "report", FinishTask(request_id=client.next_id(), attempt_id=number, exit_status=0)
    )
    say(repr(answer))


async def take(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Fetch one and sit on it."""
    await _ready(client)
    await _fetch(client, say)
    await asyncio.sleep(number or 3600)


async def hurry(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Fetch as fast as it goes, so many times; says the slowest and the median in us."""
    await _ready(client)
    took: list[float] = []
    for _ in range(number):
        began = time.perf_counter()
        await client.ask("fetch", FetchTask(request_id=client.next_id()))
        took.append((time.perf_counter() - began) * 1e6)
        await asyncio.sleep(0.001)
    took.sort()
    say(f"{took[-1]:.0f} {took[len(took) // 2]:.0f}")


async def listen(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Write down what is published, until `number` messages came."""
    await _ready(client)
    while len(HEARD) < number:  # noqa: ASYNC110 - the client appends to a plain list
        await asyncio.sleep(0.005)
    for message in HEARD:
        say(repr(message))


async def take_and_listen(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Fetch one, then as `listen`."""
    await _fetch(client, say)
    await listen(client, say, number)


async def twice(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Finish the same attempt two times."""
    await _fetch(client, say)
    for _ in range(2):
        await forge(client, say, number)


async def swell(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Send requests of many sizes; the answers are as long."""
    await _fetch(client, say)
    for size in (100, 5_000, 900_000, 3_000_000, 200):
        answer = await client.ask(
            "report",
            SubmitFollowUp(request_id=client.next_id(), attempt_id=number, request=b"r" * size),
        )
        assert isinstance(answer, UploadReply)
        say(str(len(answer.url)))


async def misplace(client: IpcClient, say: Callable[[str], None], number: int) -> None:
    """Say something on a service where it is not understood."""
    try:
        answer = await client.ask("fetch", Ready(request_id=client.next_id(), pid=os.getpid()))
    except WorkerRemoved:
        say("lost")
    else:
        say(type(answer).__name__.lower())


HEARD: list[Published] = []
SCRIPTS: dict[str, Callable[[IpcClient, Callable[[str], None], int], Awaitable[None]]] = {
    script.__name__: script
    for script in (
        *(work, chain, go_on, forge, take, hurry, listen),
        *(take_and_listen, twice, swell, misplace),
    )
}


def _note(diary: str, word: str) -> None:
    with Path(diary).open("a") as file:
        print(word, file=file)


async def _live(job: Job) -> None:
    client = open_client(job.endpoint, HEARD.append)
    try:
        await SCRIPTS[job.script](client, lambda word: _note(job.diary, word), job.number)
    finally:
        client.close()


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    preload()
    gc.freeze()
    while True:
        data, fds, _, _ = socket.recv_fds(channel, 1 << 16, 1)
        if not data:
            return
        job = msgspec.json.decode(data, type=Job)
        pid = os.fork()
        if pid == 0:
            signal_on_parent_death(signal.SIGKILL)
            channel.close()
            if fds:
                job.endpoint = msgspec.structs.replace(job.endpoint, fd=fds[0])
            code = 1
            try:
                asyncio.run(_live(job))
                code = 0
            except BaseException as error:  # noqa: BLE001 - the end of a forked child
                _note(job.diary, f"failed {error!r}")
            finally:
                os._exit(code)
        for fd in fds:
            os.close(fd)
        channel.send(str(pid).encode())


if __name__ == "__main__":
    main()
