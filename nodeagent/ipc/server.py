"""What the agent sees of its workers' IPC: keys, tokens, events, and the IpcServer it talks to.

Implemented twice: iceoryx_server (shared memory) and unix_server (a socket pair per worker), both
on top of desk. Used by the agent's shell; no transport is imported here.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from mitosis_protocol.ipc import Control, FromWorker, ToWorker, WorkerSettings, WorkItem

ServiceName: TypeAlias = Literal["fetch", "report", "heartbeat"]
TransportName: TypeAlias = Literal["iceoryx2", "unix"]


class WorkerKey(msgspec.Struct, frozen=True, order=True):
    """One life of one worker slot; `generation` grows with every spawn of the slot."""

    local_id: int
    generation: int


class RequestToken(msgspec.Struct, frozen=True):
    """Where an answer has to go; made by the server, opaque to everybody else."""

    worker: WorkerKey
    request_id: int
    service: ServiceName


class WorkerEndpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All a worker needs to reach its agent. `fd` is valid in the agent only: hand it over the
    fork and put the number it has in the worker here.
    """

    transport: TransportName
    worker: WorkerKey
    root: str  # IPC root of the agent, 0700
    directory: str  # the worker's own, for payloads too large for a message
    memory_root: str = ""  # where iceoryx2 keeps its files
    prefix: str = ""  # of everything it creates
    fd: int | None = None


class OfferTaken(msgspec.Struct, frozen=True):
    """An item left the shelf; the worker holds the attempt from now on. `is_ahead`: beside one
    that it has not finished.
    """

    worker: WorkerKey
    attempt_id: int
    is_ahead: bool = False


class WorkerParked(msgspec.Struct, frozen=True):
    """It asked for work and waits."""

    worker: WorkerKey


class WorkerReady(msgspec.Struct, frozen=True):
    """First word of a worker; already answered."""

    worker: WorkerKey
    pid: int
    trouble: str | None = None


class WorkerAsked(msgspec.Struct, frozen=True):
    """Anything but FetchTask and Ready; waits for `reply`. The attempt it names is one that this
    worker was handed.
    """

    token: RequestToken
    message: FromWorker


IpcEvent: TypeAlias = OfferTaken | WorkerParked | WorkerReady | WorkerAsked


class IpcStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since `open`; latencies are of fetches answered at once, from ring to answer."""

    workers: int = 0
    parked: int = 0
    on_shelf: int = 0
    requests: int = 0
    fetches: int = 0
    reports: int = 0
    heartbeats: int = 0
    answers: int = 0
    published: int = 0
    refused: int = 0  # undecodable, or about an attempt of somebody else
    undelivered: int = 0  # answers and control messages that found nobody
    spilled: int = 0  # payloads that went through a file
    fetch_p50_us: float = 0.0
    fetch_p95_us: float = 0.0
    fetch_p99_us: float = 0.0
    silent_s: float = 0.0  # the longest silence of a worker that is ready


class OnLoop(NamedTuple):
    """An event loop that hears the workers itself, where the transport can be waited for so: a
    thread between the two costs every result two wake-ups and the way of the GIL there and back.
    """

    loop: asyncio.AbstractEventLoop
    note: Callable[[IpcEvent], None]  # on the loop, with the server's lock held; only remembers it
    end_round: Callable[[], None]  # everything heard at once has been noted; without the lock


class IpcServer(Protocol):
    """The agent's side. Every method may be called from any thread."""

    def open(self, on_event: Callable[[IpcEvent], None], on_loop: OnLoop | None = None) -> None:
        """Start serving. `on_event` runs on the IPC thread, or on the thread that called `put`,
        with the server's lock held: it must hand over (`call_soon_threadsafe`) and return.

        A transport that can serve `on_loop` has no thread and never calls `on_event`. Not to be
        called on that loop itself, nor `close`.
        """
        ...

    def attach(self, worker: WorkerKey) -> WorkerEndpoint:
        """Make what the worker will open; before the spawn."""
        ...

    def detach(self, worker: WorkerKey) -> None:
        """After its exit: remove everything of it, drop what it asked. Unknown ones are ignored."""
        ...

    def reply(self, token: RequestToken, answer: ToWorker) -> None:
        """Ignored if the worker is gone or the request was answered."""
        ...

    def publish(self, message: Control | WorkerSettings) -> None:
        """To the workers it concerns."""
        ...

    def put(self, items: Sequence[WorkItem], *, at_front: bool = False) -> None:
        """Onto the shelf; wakes parked workers in the order in which they asked."""
        ...

    def withdraw(self, at_most: int) -> list[int]:
        """Take back up to so many attempts that nobody was given, newest first."""
        ...

    def remove(self, attempt_ids: Collection[int]) -> list[int]:
        """Take back these; returns those that were still on the shelf."""
        ...

    def set_serving(self, is_serving: bool) -> None:
        """While false the shelf is not served and fetches are parked."""
        ...

    def dismiss(self, worker: WorkerKey) -> None:
        """Its parked or next fetch is answered with `is_over`."""
        ...

    def stats(self) -> IpcStats: ...

    def close(self) -> None:
        """Stop serving and leave nothing behind."""
        ...
