"""One socket of a direct worker to `/ws/workers`: open it, move frames, say how it ended.

Knows close codes and nothing of what frames mean. Made anew for every connection by `session`.
"""

import asyncio
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

import msgspec
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from mitosis_protocol.control_plane import Frame, FrameRefused, open_frame
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_FRAME_BYTES, PING_INTERVAL_S, PING_TIMEOUT_S
from nodeagent.coordinator import verdicts
from nodeagent.coordinator.verdicts import Verdict
from nodeagent.direct.events import LinkEnd, Lost
from nodeagent.tls import ClientTls

log = structlog.stdlib.get_logger(__name__)

PATH: Final = "/ws/workers"
OPEN_TIMEOUT_S: Final = 10.0
CLOSE_TIMEOUT_S: Final = 2.0
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_ENDS: Final = {
    Verdict.RENEW: LinkEnd.REFUSED,
    Verdict.YIELD: LinkEnd.SUPERSEDED,
    Verdict.SLOW_DOWN: LinkEnd.OVERLOAD,
    Verdict.MISMATCH: LinkEnd.DENIED,
}


class Link:
    """One connection from its opening to its end."""

    def __init__(self, coordinator: str, token: str, tls: ClientTls) -> None:
        self._url = socket_url(coordinator)
        self._token = token
        self._tls = tls
        self._outgoing: asyncio.Queue[str | None] = asyncio.Queue()

    def send(self, frame: str) -> None:
        """Never waits; what a dying connection does not take is sent again by the next one."""
        self._outgoing.put_nowait(frame)

    def close(self) -> None:
        """Ask for the end: what was queued goes out, then `serve` returns."""
        self._outgoing.put_nowait(None)

    async def serve(self, on_open: Callable[[], None], on_frame: Callable[[Frame], None]) -> Lost:
        """Until the connection is gone."""
        try:
            socket = await connect(
                self._url,
                ssl=self._tls.for_socket(self._url),
                additional_headers={"Authorization": f"Bearer {self._token}"},
                user_agent_header="mitosis-worker",
                compression=None,
                proxy=None if urlsplit(self._url).hostname in _LOOPBACK else True,
                max_size=MAX_FRAME_BYTES,
                open_timeout=OPEN_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                ping_interval=PING_INTERVAL_S,
                ping_timeout=PING_TIMEOUT_S,
            )
        except InvalidStatus as refused:
            return _refused(refused)
        except (OSError, WebSocketException) as error:
            return Lost(LinkEnd.LOST, str(error) or type(error).__name__)
        return await self._converse(socket, on_open, on_frame)

    async def _converse(
        self,
        socket: ClientConnection,
        on_open: Callable[[], None],
        on_frame: Callable[[Frame], None],
    ) -> Lost:
        writer = asyncio.create_task(self._write(socket))
        try:
            on_open()
            while True:
                data = await socket.recv(decode=False)
                try:
                    frame = open_frame(data)
                except FrameRefused as refused:
                    # A newer coordinator may say things we do not know; the socket lives on.
                    log.warning("direct.unreadable_frame", error=str(refused))
                    continue
                on_frame(frame)
        except ConnectionClosed as closed:
            return Lost(_end(verdicts.of_close(closed, None)), verdicts.describe(closed))
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            await socket.close()

    async def _write(self, socket: ClientConnection) -> None:
        try:
            while (frame := await self._outgoing.get()) is not None:
                await socket.send(frame)
            await socket.close()
        except ConnectionClosed:
            # The reader hears the same, with the reason.
            return


def socket_url(coordinator: str) -> str:
    """From the address the operator gave us, never from what an answer says."""
    parts = urlsplit(coordinator)
    scheme = "wss" if parts.scheme == "https" else "ws"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}{PATH}"


class _Problem(msgspec.Struct):
    """All we want to know of a refusal's body."""

    code: str = ""


def _refused(refused: InvalidStatus) -> Lost:
    reason = f"refused with status {refused.response.status_code}"
    try:
        code = msgspec.json.decode(refused.response.body, type=_Problem).code
    except msgspec.MsgspecError:
        code = ""
    if code == ErrorCode.AUTH_MTLS_REQUIRED:
        return Lost(LinkEnd.UNPROVEN, reason)
    return Lost(_end(verdicts.of_refusal(refused)), reason)


def _end(verdict: Verdict) -> LinkEnd:
    return _ENDS.get(verdict, LinkEnd.LOST)
