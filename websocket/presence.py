"""Which runners this process serves: sessions opened, watched, told and closed.

The database is the truth (epoch, token generation, lease), the dictionary here only a way to find
sockets. One statement a second looks at all of them: revoked or expired tokens are closed with
4401, sessions that another process took over with 4409. One Presence per kind of runner: managers
here, direct workers in websocket.worker_presence. Opened by mitosis_site.runtime.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

import structlog
from django.conf import settings

from accounts.identity import Identity
from core import clock
from core.errors import DatabaseUnavailable
from core.faults import afault
from core.push import ALL_MANAGERS, MANAGER_PUSH, manager_group
from managers.services.session_clones import quarantine_clones
from managers.services.session_duty import SessionStanding, read_standings
from mitosis_protocol.errors import ErrorCode
from runners.services.sessions import RunnerSession, close_session, open_session
from websocket.auth import Send
from websocket.close_codes import LEASE_LOST, SUPERSEDED, CloseCode
from websocket.connection import Connection, Limits, RunnerPeer
from websocket.peer import Peer
from websocket.pushes import listen, stop
from websocket.rate import Bucket
from websocket.session import Session
from websocket.takeovers import Takeovers

log = structlog.get_logger(__name__)

WATCH_S: Final = 1.0  # well below the 5 s within which a revocation has to reach a socket

PeerT = TypeVar("PeerT", bound=RunnerPeer)


@dataclass(frozen=True, slots=True)
class SocketKind(Generic[PeerT]):
    """What differs between the sockets of managers and of direct workers."""

    push_type: str
    push_groups: Callable[[PeerT], Sequence[str]]
    meet: Callable[[Identity, RunnerSession, str | None], Awaitable[PeerT]]
    make: Callable[[PeerT, Send, Limits, Bucket], Connection]
    suspect_clones: Callable[[int], Awaitable[None]]


class Presence(Generic[PeerT]):
    """The sockets of one kind in one process."""

    def __init__(self, kind: SocketKind[PeerT]) -> None:
        self._kind = kind
        self._sessions: dict[UUID, tuple[Connection, Identity]] = {}
        self._takeovers = Takeovers()
        self._buckets: dict[UUID, Bucket] = {}
        self._background: set[asyncio.Task[None]] = set()

    async def open(self, identity: Identity, *, ip: str | None) -> tuple[PeerT, RunnerSession]:
        """Take the runner over. Raises AuthenticationFailed and DatabaseUnavailable."""
        opened = await open_session(identity, process_id=None, ttl_s=settings.MITOSIS.lease_ttl_s)
        return await self._kind.meet(identity, opened, ip), opened

    @asynccontextmanager
    async def joined(
        self, peer: PeerT, identity: Identity, opened: RunnerSession, send: Send
    ) -> AsyncIterator[Connection]:
        """The session while it lasts: known to this process, reached by pushes."""
        policy = settings.MITOSIS
        limits = Limits(
            in_flight=policy.socket_in_flight,
            send_queue=policy.socket_send_queue,
            answer_s=policy.socket_answer_s,
        )
        session = self._kind.make(peer, send, limits, self._bucket(peer.runner_uuid))
        self._admit(session, identity)
        groups = self._kind.push_groups(peer)
        listener = asyncio.create_task(listen(groups, self._kind.push_type, session.hear))
        try:
            yield session
        finally:
            await stop(listener)
            if self._sessions.get(peer.runner_uuid, (None, None))[0] is session:
                del self._sessions[peer.runner_uuid]
            await afault("session.old_close_after_new_open")
            # Nothing is reclaimed: the lease decides. A newer session is not touched.
            with suppress(DatabaseUnavailable):
                await close_session(opened)

    async def watch(self) -> None:
        """Close what may not stay open, until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self.look()
            except DatabaseUnavailable:
                log.warning("presence.unwatched", sockets=len(self._sessions))
            except Exception:  # the watch must outlive a bug in one round
                log.exception("presence.watch_crashed")

    async def look(self) -> None:
        """One round of `watch`."""
        self._forget_calm()
        # One that ends may take seconds to say goodbye; its takeover was counted.
        present = [pair for pair in self._sessions.values() if not pair[0].is_ending]
        if not present:
            return
        now = clock.now()
        for session, identity in present:
            if identity.expires_at <= now:
                session.close(CloseCode.AUTH, "token expired", error=ErrorCode.AUTH_EXPIRED_TOKEN)
        standings = await read_standings([session.who.runner_id for session, _ in present])
        for session, identity in present:
            self._judge(session, identity, standings.get(session.who.runner_id))

    def close_all(self, code: CloseCode, reason: str) -> None:
        for session, _ in list(self._sessions.values()):
            session.close(code, reason)

    def _admit(self, session: Connection, identity: Identity) -> None:
        uuid = session.who.runner_uuid
        older, _ = self._sessions.get(uuid, (None, None))
        if older is not None and older.who.session_epoch > session.who.session_epoch:
            _supersede(session)
            return
        self._sessions[uuid] = (session, identity)
        if older is not None and not older.is_ending:
            _supersede(older)
            session.who.takeover = self._takeovers.note(uuid, older.who.process_id)
            self._look_for_clones(session.who)

    def _bucket(self, runner_uuid: UUID) -> Bucket:
        """One per runner: whoever was closed for flooding does not get a new one by returning."""
        policy = settings.MITOSIS
        bucket = self._buckets.get(runner_uuid)
        if bucket is None:
            bucket = Bucket(per_s=policy.socket_frames_per_s, burst=policy.socket_frames_burst)
            self._buckets[runner_uuid] = bucket
        return bucket

    def _forget_calm(self) -> None:
        """What is kept about runners that left is gone once it says nothing any more."""
        absent = self._buckets.keys() - self._sessions.keys()
        for uuid in [uuid for uuid in absent if self._buckets[uuid].is_full()]:
            del self._buckets[uuid]
        self._takeovers.forget_old()

    def _judge(
        self, session: Connection, identity: Identity, standing: SessionStanding | None
    ) -> None:
        if (
            standing is None
            or standing.is_revoked
            or standing.token_generation != identity.generation
        ):
            session.close(CloseCode.AUTH, "token revoked", error=ErrorCode.AUTH_REVOKED_TOKEN)
        elif standing.session_epoch > session.who.session_epoch:
            if standing.is_lost:
                lost = ErrorCode.SESSION_LEASE_LOST
                session.close(CloseCode.SUPERSEDED, LEASE_LOST, error=lost)
            else:
                _supersede(session)
                self._note_departure(session.who, standing.process_id)

    def _note_departure(self, who: RunnerPeer, now_at: UUID | None) -> None:
        """Another process of the coordinator has the runner: it went there, or a clone did."""
        takeover = self._takeovers.note(who.runner_uuid, who.process_id)
        if now_at is not None:
            takeover.heard(now_at)
        self._look_for_clones(who)

    def _look_for_clones(self, who: RunnerPeer) -> None:
        """Two agents with one identity throw each other out without end; take both out of work."""
        if self._takeovers.count(who.runner_uuid) > settings.MITOSIS.supersedes_per_minute:
            self._takeovers.forget(who.runner_uuid)
            task = asyncio.create_task(self._suspect(who.runner_id))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def _suspect(self, runner_id: int) -> None:
        await self._kind.suspect_clones(runner_id)


def _supersede(session: Connection) -> None:
    session.close(CloseCode.SUPERSEDED, SUPERSEDED, error=ErrorCode.SESSION_SUPERSEDED)


async def _meet_manager(identity: Identity, opened: RunnerSession, ip: str | None) -> Peer:
    return Peer(
        manager_id=identity.id,
        manager_uuid=UUID(identity.subject),
        session_epoch=opened.session_epoch,
        ip=ip,
    )


MANAGERS: Final[SocketKind[Peer]] = SocketKind(
    push_type=MANAGER_PUSH,
    push_groups=lambda peer: (manager_group(peer.manager_uuid), ALL_MANAGERS),
    meet=_meet_manager,
    make=lambda peer, send, limits, bucket: Session(peer, send, limits=limits, bucket=bucket),
    suspect_clones=quarantine_clones,
)
PRESENCE: Final = Presence(MANAGERS)


@asynccontextmanager
async def serving() -> AsyncIterator[None]:
    """The watch over the manager sockets of this process; part of the runtime."""
    async with watched(PRESENCE):
        yield


@asynccontextmanager
async def watched(presence: Presence[PeerT]) -> AsyncIterator[None]:
    watch = asyncio.create_task(presence.watch())
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
