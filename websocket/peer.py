"""Who is at the other end of a socket, as its handlers know it. Made by websocket.presence."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from accounts.actors import Actor
from websocket.takeovers import Takeover

MAX_REMEMBERED: Final = 4096  # as many attempts as an inventory may name


@dataclass(slots=True)
class Peer:
    """One accepted connection of one manager; the identity comes from its token."""

    manager_id: int
    manager_uuid: UUID
    session_epoch: int
    ip: str | None = None
    process_id: UUID | None = None
    takeover: Takeover | None = None
    forgeries: int = 0
    is_idle: bool = False  # said so in its newest heartbeat
    # The RFC reports an exit code with Finish and none with Commit.
    _exit_codes: dict[int, int] = field(default_factory=dict)
    _notes: set[asyncio.Future[None]] = field(default_factory=set)  # of events being written

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Around writing down news of running tasks."""
        note: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._notes.add(note)
        try:
            yield
        finally:
            self._notes.discard(note)
            note.set_result(None)

    async def noted(self) -> None:
        """Until the news that came before are written: output that comes after the end of its task
        is refused, so a report must not overtake the last words before it.
        """
        if self._notes:
            await asyncio.wait(set(self._notes))

    @property
    def runner_id(self) -> int:
        return self.manager_id

    @property
    def runner_uuid(self) -> UUID:
        return self.manager_uuid

    @property
    def actor(self) -> Actor:
        return Actor(kind="manager", id=str(self.manager_uuid), ip=self.ip)

    def speaks_for(self, process_id: UUID) -> None:
        """Its hello: which process of the agent is at the other end."""
        self.process_id = process_id
        if self.takeover is not None:
            self.takeover.heard(process_id)

    def remember_exit(self, attempt_id: int, exit_code: int) -> None:
        while len(self._exit_codes) >= MAX_REMEMBERED:
            del self._exit_codes[next(iter(self._exit_codes))]
        self._exit_codes[attempt_id] = exit_code

    def recall_exit(self, attempt_id: int) -> int | None:
        return self._exit_codes.get(attempt_id)

    def forget_exit(self, attempt_id: int) -> None:
        self._exit_codes.pop(attempt_id, None)
