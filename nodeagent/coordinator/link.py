"""The agent's one socket to the coordinator: connect, keep, lose, connect again.

Moves frames and knows close codes; what frames mean is the core's business. Run by agent as one
task; `send` never waits. Full-jitter backoff from 1 to 60 s, counted anew after a minute of good
connection.
"""

import asyncio
import time
from collections import deque
from typing import Final, Protocol
from urllib.parse import urlsplit

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from mitosis_protocol.codec import DecodeFailed
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.from_manager import FROM_MANAGER, FromManager
from mitosis_protocol.limits import MAX_FRAME_BYTES, PING_INTERVAL_S, PING_TIMEOUT_S
from mitosis_protocol.to_manager import TO_MANAGER, Error, ToManager
from nodeagent.coordinator import verdicts
from nodeagent.coordinator.verdicts import Verdict
from nodeagent.errors import (
    AuthRejected,
    CoordinatorUnavailable,
    IdentityTaken,
    LinkLost,
    ProtocolMismatch,
)
from nodeagent.tls import ClientTls, TlsFiles
from nodeagent.worker.retry import Backoff

log = structlog.stdlib.get_logger(__name__)

BACKOFF: Final = Backoff(base_s=1.0, cap_s=60.0, floor_s=0.05)
HEALTHY_S: Final = 60.0
OPEN_TIMEOUT_S: Final = 10.0
CLOSE_TIMEOUT_S: Final = 2.0
SLOW_DOWN_S: Final = 10.0
# A try that broke off half-way may still be accepted over there, after the one that followed it;
# an earlier life of this agent, killed while it connected, may have left one as well.
GHOST_S: Final = 120.0
MAX_GHOSTS: Final = 16
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class TokenSource(Protocol):
    """Where tokens come from (nodeagent.coordinator.tokens)."""

    def current(self) -> str: ...

    async def renew(self, refused: str) -> str: ...


class LinkListener(Protocol):
    """Who hears of the link, on the loop."""

    def on_link_up(self) -> None: ...

    def on_frame(self, message: ToManager) -> None: ...

    def on_link_lost(self, reason: str) -> None: ...


class Link:
    """At most one connection at a time."""

    def __init__(
        self,
        coordinator: str,
        tokens: TokenSource,
        listener: LinkListener,
        *,
        tls: ClientTls | None = None,
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._url = socket_url(coordinator)
        self._tokens = tokens
        self._tls = tls or TlsFiles().open(coordinator)
        self._listener = listener
        self._backoff = backoff
        self._outgoing: deque[str] = deque()
        self._has_outgoing = asyncio.Event()
        self._is_flushed = asyncio.Event()
        self._is_up = False
        self._failures = 0
        self._last_trouble = ""
        self._last_error: ErrorCode | None = None
        # Until when each could still appear.
        self._ghosts = deque([time.monotonic() + GHOST_S], maxlen=MAX_GHOSTS)
        self._renewed_at: float | None = None

    @property
    def is_up(self) -> bool:
        return self._is_up

    def send(self, message: FromManager) -> None:
        """Queue a frame. Raises LinkLost when there is no connection: it would never arrive."""
        if not self._is_up:
            raise LinkLost("not connected")
        self._outgoing.append(FROM_MANAGER.encode(message).decode())
        self._has_outgoing.set()
        self._is_flushed.clear()

    async def flush(self) -> None:
        """Until everything queued is handed to the kernel, or the connection is gone."""
        if self._is_up:
            await self._is_flushed.wait()

    async def run(self) -> None:
        """Keep connected until cancelled. Raises AuthRejected, IdentityTaken, ProtocolMismatch."""
        while True:
            token = self._tokens.current()
            began = time.monotonic()
            verdict, reason = await self._try_once(token)
            if time.monotonic() - began > HEALTHY_S:
                self._failures = 0
            # A token that was rotated in time ends with its socket: nothing is wrong then.
            if verdict is not Verdict.RENEW or self._tokens.current() == token:
                self._note_trouble(reason)
            await self._follow(verdict, token, reason)

    async def _try_once(self, token: str) -> tuple[Verdict, str]:
        """One connection from its opening to its end."""
        try:
            socket = await connect(
                self._url,
                ssl=self._tls.for_socket(self._url),
                additional_headers={"Authorization": f"Bearer {token}"},
                user_agent_header="mitosis-agent",
                compression=None,
                proxy=None if urlsplit(self._url).hostname in _LOOPBACK else True,
                max_size=MAX_FRAME_BYTES,
                open_timeout=OPEN_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                ping_interval=PING_INTERVAL_S,
                ping_timeout=PING_TIMEOUT_S,
            )
        except InvalidStatus as refused:
            status = refused.response.status_code
            return verdicts.of_refusal(refused), f"refused with status {status}"
        except ConnectionRefusedError:
            return Verdict.RETRY, "connection refused"
        except (OSError, WebSocketException) as error:
            self._ghosts.append(time.monotonic() + GHOST_S)
            return Verdict.RETRY, str(error) or type(error).__name__
        return await self._serve(socket)

    async def _serve(self, socket: ClientConnection) -> tuple[Verdict, str]:
        self._outgoing.clear()
        self._last_error = None
        self._is_up = True
        writer = asyncio.create_task(self._write(socket))
        reason = "leaving"
        try:
            self._listener.on_link_up()
            log.info("link.up", coordinator=self._url, after_failures=self._failures)
            self._last_trouble = ""
            while True:
                self._take(await socket.recv(decode=False))
        except ConnectionClosed as closed:
            reason = verdicts.describe(closed)
            return verdicts.of_close(closed, self._last_error), reason
        finally:
            self._is_up = False
            self._is_flushed.set()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            self._listener.on_link_lost(reason)
            await socket.close()

    def _take(self, data: bytes) -> None:
        try:
            message = TO_MANAGER.decode(data)
        except DecodeFailed as failure:
            # A newer coordinator may say things we do not know; the socket lives on.
            log.warning("link.unreadable_frame", code=failure.code.value, error=failure.message)
            return
        if isinstance(message, Error):
            self._last_error = message.code
        self._listener.on_frame(message)

    async def _write(self, socket: ClientConnection) -> None:
        try:
            while True:
                await self._has_outgoing.wait()
                self._has_outgoing.clear()
                while self._outgoing:
                    await socket.send(self._outgoing[0])
                    self._outgoing.popleft()
                self._is_flushed.set()
        except ConnectionClosed:
            # The reader hears the same, with the reason.
            return

    async def _follow(self, verdict: Verdict, token: str, reason: str) -> None:
        """Raise, or wait until it is time to connect again."""
        if verdict is Verdict.MISMATCH:
            raise ProtocolMismatch(f"the coordinator refuses this agent: {reason}")
        if verdict is Verdict.YIELD:
            self._yield()
        if verdict in (Verdict.RENEW, Verdict.MAYBE_RENEW):
            await self._renew(verdict, token)
        else:
            await self._pause(SLOW_DOWN_S if verdict is Verdict.SLOW_DOWN else 0.0)

    def _yield(self) -> None:
        """Most likely a try of our own, accepted late; but each of them only once."""
        while self._ghosts and self._ghosts[0] < time.monotonic():
            self._ghosts.popleft()
        if not self._ghosts:
            raise IdentityTaken(
                "another agent connected under this agent's identity; "
                "each agent needs a data directory of its own"
            )
        self._ghosts.popleft()

    async def _renew(self, verdict: Verdict, refused: str) -> None:
        """Another token; at once if the last one was good for a while, else after a pause."""
        if verdict is Verdict.RENEW and self._tokens.current() != refused:
            # Rotated in time: the old one ended with its socket, and the new one is untried.
            self._failures = 0
            return
        now = time.monotonic()
        is_fresh = self._renewed_at is not None and now - self._renewed_at < HEALTHY_S
        if is_fresh and verdict is Verdict.RENEW:
            raise AuthRejected("the coordinator refuses a token that it has just issued")
        if not is_fresh or verdict is Verdict.RENEW:
            try:
                await self._tokens.renew(refused)
                self._renewed_at = now
            except CoordinatorUnavailable as error:
                self._note_trouble(str(error))
                is_fresh = True
        if is_fresh:
            await self._pause(0.0)

    async def _pause(self, at_least_s: float) -> None:
        self._failures += 1
        delay_s = at_least_s + self._backoff.delay_s(self._failures)
        log.debug("link.waiting", failures=self._failures, delay_s=round(delay_s, 2))
        await asyncio.sleep(delay_s)

    def _note_trouble(self, reason: str) -> None:
        """One line for an outage, however long it lasts."""
        if reason != self._last_trouble:
            log.warning("link.down", coordinator=self._url, reason=reason, trying_again=True)
        self._last_trouble = reason


def socket_url(coordinator: str) -> str:
    """From the address the operator gave us, never from what an answer says."""
    parts = urlsplit(coordinator)
    scheme = "wss" if parts.scheme == "https" else "ws"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/ws/managers"
