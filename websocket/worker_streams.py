"""Order and repetition on the control plane: numbered streams, remembered messages, owed acks.

Pure but for the timers of `Unacked`. Owned by websocket.worker_session; the rules are those of
docs/control-plane.md, keyed by attempt, never by task.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from core.counters import CMD_RETRY
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_plane import ACK_TRIES, retry_delay_s

MAX_REMEMBERED: Final = 1024  # messages of one session whose repetition is recognised


class Place(Enum):
    """Where a numbered message stands in its stream."""

    NEXT = "next"
    REPEATED = "repeated"
    GAP = "gap"


class Stream:
    """One attempt, worker to scheduler: 1, 2, 3 ... without holes.

    A message is admitted when it is the next; `fail` takes it back when it could not be kept, so
    that its repetition, and nothing behind it, is the next again.
    """

    def __init__(self, expect: int = 1) -> None:
        self.expect = expect

    def admit(self, seq: int) -> Place:
        if seq < self.expect:
            return Place.REPEATED
        if seq > self.expect:
            return Place.GAP
        self.expect += 1
        return Place.NEXT

    def fail(self, seq: int) -> None:
        self.expect = min(self.expect, seq)


class Remembered:
    """Messages taken in this session by `(id, corr)`, with what they were answered."""

    def __init__(self, size: int = MAX_REMEMBERED) -> None:
        self._size = size
        self._answers: OrderedDict[tuple[str, str | None], str | None] = OrderedDict()

    def is_known(self, key: tuple[str, str | None]) -> bool:
        return key in self._answers

    def answer_to(self, key: tuple[str, str | None]) -> str | None:
        """The frame to repeat; None while the first one is still being handled."""
        return self._answers.get(key)

    def note(self, key: tuple[str, str | None], answer: str | None = None) -> None:
        self._answers[key] = answer
        self._answers.move_to_end(key)
        while len(self._answers) > self._size:
            self._answers.popitem(last=False)

    def forget(self, key: tuple[str, str | None]) -> None:
        """It could not be kept: its repetition is as good as new."""
        self._answers.pop(key, None)


@dataclass(eq=False)
class _Owed:
    frame: str
    on_ack: Callable[[], None]
    on_refusal: Callable[[ControlCode, str], None]
    tries: int = 0
    timer: asyncio.TimerHandle | None = None


def _nothing(*_: object) -> None:
    return


class Unacked:
    """Messages whose ack is owed: sent again with growing pauses, given up after six sendings."""

    def __init__(self, send: Callable[[str], None], on_silence: Callable[[str], None]) -> None:
        self._send = send
        self._on_silence = on_silence
        self._owed: dict[str, _Owed] = {}

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._owed

    def send(
        self,
        message_id: str,
        frame: str,
        *,
        on_ack: Callable[[], None] = _nothing,
        on_refusal: Callable[[ControlCode, str], None] = _nothing,
    ) -> None:
        owed = _Owed(frame, on_ack, on_refusal)
        self._owed[message_id] = owed
        self._transmit(message_id, owed)

    def acked(self, message_id: str) -> bool:
        """False for an ack that nobody waits for (any more)."""
        owed = self._drop(message_id)
        if owed is not None:
            owed.on_ack()
        return owed is not None

    def refused(self, message_id: str, code: ControlCode, reason: str) -> bool:
        owed = self._drop(message_id)
        if owed is not None:
            owed.on_refusal(code, reason)
        return owed is not None

    def withdraw(self, message_id: str) -> None:
        """Nobody needs it any more."""
        self._drop(message_id)

    def close(self) -> None:
        for message_id in list(self._owed):
            self._drop(message_id)

    def _drop(self, message_id: str) -> _Owed | None:
        owed = self._owed.pop(message_id, None)
        if owed is not None and owed.timer is not None:
            owed.timer.cancel()
        return owed

    def _transmit(self, message_id: str, owed: _Owed) -> None:
        owed.tries += 1
        if owed.tries > 1:
            CMD_RETRY.of("no_ack").inc()
        self._send(owed.frame)
        delay_s = retry_delay_s(owed.tries, jitter=random.random())  # noqa: S311 - jitter
        loop = asyncio.get_running_loop()
        owed.timer = loop.call_later(delay_s, self._again, message_id)

    def _again(self, message_id: str) -> None:
        owed = self._owed.get(message_id)
        if owed is None:
            return
        if owed.tries >= ACK_TRIES:
            self._drop(message_id)
            self._on_silence(message_id)
        else:
            self._transmit(message_id, owed)
