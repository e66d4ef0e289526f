"""Messages that must arrive: numbered streams of attempts, and single ones that want an ack.

Pure: the caller brings time and chance. Repeated after 200 ms, doubling to 5 s; whoever gets no ack
for six sendings gives the connection up, and the next session starts them again. Used by machine.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from mitosis_protocol.control_payloads import Feedback, Payload, Result
from mitosis_protocol.control_plane import ACK_TRIES, retry_delay_s
from nodeagent.direct.events import Message

# Sent and not acked at one time: a burst of output must not be a burst of frames.
WINDOW: Final = 16
# A gap that is complained of again within this time was answered already.
REWIND_S: Final = 0.1

Chance = Callable[[], float]


class _Sending:
    """How often a message went out in this session, and when it is repeated."""

    __slots__ = ("due", "message", "sent_at", "tries")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.tries = 0
        self.due = 0.0
        self.sent_at = float("-inf")

    def send(self, now: float, chance: Chance) -> Message:
        self.tries += 1
        self.sent_at = now
        self.due = now + retry_delay_s(self.tries, jitter=chance())
        return self.message

    def restart(self) -> None:
        self.tries = 0
        self.due = 0.0

    def is_hopeless(self, now: float) -> bool:
        return self.tries >= ACK_TRIES and now >= self.due


class Stream:
    """The numbered messages of one attempt, in order, kept until the other side has them."""

    def __init__(self, attempt_id: int) -> None:
        self.attempt_id = attempt_id
        self._next = 1
        self._kept: OrderedDict[int, _Sending] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def next_seq(self) -> int:
        """The first number that was not acked."""
        return next(iter(self._kept), self._next)

    @property
    def last_seq(self) -> int:
        """The number given last; 0 before the first."""
        return self._next - 1

    def put(self, message_id: str, payload: Feedback | Result) -> int:
        """The number it gets."""
        seq = self._next
        self._next += 1
        self._kept[seq] = _Sending(
            Message(
                id=message_id, payload=payload, corr=str(self.attempt_id), seq=seq, wants_ack=True
            )
        )
        return seq

    def find(self, message_id: str) -> Message | None:
        for sending in self._kept.values():
            if sending.message.id == message_id:
                return sending.message
        return None

    def take_until(self, seq: int) -> bool:
        """Everything up to `seq` has arrived, for they are taken in order; whether it is news."""
        arrived = [number for number in self._kept if number <= seq]
        for number in arrived:
            del self._kept[number]
        return bool(arrived)

    def replace(self, message_id: str, payload: Feedback | Result, new_id: str) -> None:
        """Another message under the number of one that was refused, so that the stream goes on."""
        for seq, sending in self._kept.items():
            if sending.message.id == message_id:
                message = Message(
                    id=new_id, payload=payload, corr=str(self.attempt_id), seq=seq, wants_ack=True
                )
                self._kept[seq] = _Sending(message)
                return

    def restart(self) -> None:
        """A new session: send all of them again."""
        for sending in self._kept.values():
            sending.restart()

    def rewind(self, expect: int, now: float) -> None:
        """A gap: they have everything before `expect` and nothing after it.

        One loss makes a complaint of every message that followed it; the first one is answered.
        """
        self.take_until(expect - 1)
        first = next(iter(self._kept.values()), None)
        if first is not None and now - first.sent_at >= REWIND_S:
            self.restart()

    def due(self, now: float, chance: Chance) -> list[Message]:
        """What goes out now, always in order: first sendings, or all again when the oldest is due.

        Only the oldest has a clock: a later one that overtook it would be a gap.
        """
        window = list(self._kept.values())[:WINDOW]
        is_late = bool(window) and window[0].tries > 0 and now >= window[0].due
        return [sending.send(now, chance) for sending in window if is_late or not sending.tries]

    def is_hopeless(self, now: float) -> bool:
        return any(sending.is_hopeless(now) for sending in list(self._kept.values())[:1])

    @property
    def wake_at(self) -> float | None:
        window = list(self._kept.values())[:WINDOW]
        if any(not sending.tries for sending in window):
            return 0.0
        return window[0].due if window else None


class Deliveries:
    """Single messages that want an ack."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Sending] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def put(self, message: Message) -> None:
        self._open[message.id] = _Sending(message)

    def settle(self, message_id: str) -> Payload | None:
        """What was acked, or None: an old ack, or one for somebody else."""
        found = self._open.pop(message_id, None)
        return None if found is None else found.message.payload

    def clear(self) -> None:
        self._open.clear()

    def drop(self, kind: type[Payload]) -> None:
        """Forget those of one kind: a newer one says more."""
        for message_id, sending in list(self._open.items()):
            if isinstance(sending.message.payload, kind):
                del self._open[message_id]

    def keep_only(self, kind: type[Payload]) -> None:
        """What belongs to the session that is over is forgotten; the rest starts again."""
        for message_id, sending in list(self._open.items()):
            if isinstance(sending.message.payload, kind):
                sending.restart()
            else:
                del self._open[message_id]

    def due(self, now: float, chance: Chance) -> list[Message]:
        return [sending.send(now, chance) for sending in self._open.values() if now >= sending.due]

    def is_hopeless(self, now: float) -> bool:
        return any(sending.is_hopeless(now) for sending in self._open.values())

    @property
    def wake_at(self) -> float | None:
        return min((sending.due for sending in self._open.values()), default=None)
