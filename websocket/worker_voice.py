"""What the scheduler says to one direct worker: sealed, numbered, repeated until it is acked.

Owned by websocket.worker_session, used by its duty and handlers.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import structlog

from core import clock
from core.counters import WS_FRAME_BYTES
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import Payload
from mitosis_protocol.control_plane import TYPE_OF, Envelope, Stamp, seal
from mitosis_protocol.timestamps import format_rfc3339
from websocket.worker_peer import WorkerPeer
from websocket.worker_streams import Unacked

log = structlog.get_logger(__name__)
_STDLIB: Final = logging.getLogger(__name__)


class Voice:
    """The sending half of one session."""

    def __init__(
        self, peer: WorkerPeer, put: Callable[[str], None], on_silence: Callable[[str], None]
    ) -> None:
        self._peer = peer
        self._queue = put
        self._count = 0
        self._unacked = Unacked(self.repeat, on_silence)

    def say(self, payload: Payload, *, corr: str | None = None) -> str:
        """Send once, without asking for an ack; the frame."""
        _, frame = self._seal(payload, corr, None, wants_ack=False)
        self.repeat(frame)
        return frame

    def insist(
        self,
        payload: Payload,
        *,
        corr: str | None = None,
        seq: int | None = None,
        on_ack: Callable[[], None] = lambda: None,
        on_refusal: Callable[[ControlCode, str], None] = lambda _code, _reason: None,
    ) -> str:
        """Send until it is acked or refused; its id. Silence ends the session."""
        message_id, frame = self._seal(payload, corr, seq, wants_ack=True)
        self._unacked.send(message_id, frame, on_ack=on_ack, on_refusal=on_refusal)
        return message_id

    def repeat(self, frame: str) -> None:
        """A frame that was sealed before."""
        WS_FRAME_BYTES.of(self._peer.tenant.name, "out").inc(len(frame))
        self._queue(frame)

    def acked(self, message_id: str) -> bool:
        """False for an ack that nobody waits for (any more)."""
        return self._unacked.acked(message_id)

    def refused(self, message_id: str, code: ControlCode, reason: str) -> bool:
        return self._unacked.refused(message_id, code, reason)

    def withdraw(self, message_id: str) -> None:
        self._unacked.withdraw(message_id)

    def close(self) -> None:
        self._unacked.close()

    def _seal(
        self, payload: Payload, corr: str | None, seq: int | None, *, wants_ack: bool
    ) -> tuple[str, str]:
        self._count += 1
        message_id = f"{self._peer.session_epoch}.{self._count}"
        now = format_rfc3339(clock.now())
        stamp = Stamp(message_id, now, self._peer.tenant.name, self._peer.voice)
        if is_verbose():
            log.debug("worker.told", **self._peer.known_as, type=TYPE_OF[type(payload)],
                      id=message_id, corr=corr, seq=seq,
                      code=getattr(payload, "code", None))  # fmt: skip
        return message_id, seal(payload, stamp, corr=corr, seq=seq, wants_ack=wants_ack)


def is_verbose() -> bool:
    """Whether single frames are logged: asked first, because a line that is not wanted costs 7 us,
    and a small task has five frames.
    """
    return _STDLIB.isEnabledFor(logging.DEBUG)


def log_fields(envelope: Envelope, payload: Payload) -> dict[str, Any]:
    """A message for the log: never its content, which is the tenant's."""
    return {
        "type": envelope.type,
        "id": envelope.id,
        "corr": envelope.corr,
        "seq": envelope.seq,
        "code": getattr(payload, "code", None),
    }
