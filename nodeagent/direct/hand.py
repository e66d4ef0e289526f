"""What a direct worker holds: attempts, what was said about them, and what the coordinator has.

Pure; part of machine. An attempt leaves the hand when its result was acked, or when the coordinator
says that it is somebody else's; it is remembered a while, so that a late repeat starts nothing.
"""

from collections.abc import Callable, Iterator

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import Ack, Dispatch, Error, Feedback, Result
from nodeagent.direct.events import Effect, Message, Settled, Stop, Taken
from nodeagent.direct.memory import Recent
from nodeagent.direct.streams import Chance, Stream

_GONE = frozenset({ControlCode.SESSION_STALE_BINDING, ControlCode.RESULT_DUPLICATE})


class Hand:
    """Attempts in hand, each with its stream."""

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.dispatches: dict[int, Dispatch] = {}
        self._streams: dict[int, Stream] = {}
        self._past: Recent[int, bool] = Recent()
        self._new_id = new_id

    def knows(self, attempt_id: int) -> bool:
        """Whether it is or was here: a dispatch of it starts nothing."""
        return attempt_id in self.dispatches or attempt_id in self._past

    def take(self, dispatch: Dispatch) -> None:
        self.dispatches[dispatch.task_id] = dispatch
        self._streams[dispatch.task_id] = Stream(dispatch.task_id)

    def drop(self, attempt_id: int) -> bool:
        """Forget it; whether it was here."""
        self._streams.pop(attempt_id, None)
        if self.dispatches.pop(attempt_id, None) is None:
            return False
        self._past.put(attempt_id, True)
        return True

    def say(self, feedback: Feedback) -> int | None:
        """The number of the message, or None if nobody wants to hear of the attempt."""
        return self._put(feedback.task_id, feedback)

    def end(self, result: Result) -> int | None:
        return self._put(result.task_id, result)

    def next_seqs(self) -> Iterator[tuple[int, int]]:
        for attempt_id, stream in sorted(self._streams.items()):
            yield attempt_id, stream.next_seq

    def backlog(self, attempt_id: int) -> int:
        """Messages of the attempt that are not acked yet."""
        stream = self._streams.get(attempt_id)
        return 0 if stream is None else len(stream)

    def last_seq(self, attempt_id: int) -> int | None:
        """The number of the newest message of the attempt; None if it is not here."""
        stream = self._streams.get(attempt_id)
        return None if stream is None else stream.last_seq

    def restart(self) -> None:
        for stream in self._streams.values():
            stream.restart()

    def acked(self, ack: Ack) -> list[Effect]:
        found = self._find(ack.for_id)
        if found is None:
            return []
        stream, message = found
        assert message.seq is not None
        stream.take_until(message.seq)
        effects: list[Effect] = [Taken(stream.attempt_id, message.seq)]
        if isinstance(message.payload, Result):
            self.drop(stream.attempt_id)
            effects.append(Settled(stream.attempt_id, ack.answer or "ok"))
        return effects

    def refused(self, error: Error, now: float) -> list[Effect]:
        """The coordinator complains about a message of ours."""
        stream, message = self._named(error)
        if stream is None:
            return []
        attempt_id = stream.attempt_id
        if error.code in _GONE:
            self.drop(attempt_id)
            return [Stop(attempt_id, "revoked"), Settled(attempt_id, "stale_attempt")]
        if error.code is ControlCode.RESULT_SEQ_GAP and error.expect is not None:
            stream.rewind(error.expect, now)
            return [Taken(attempt_id, error.expect - 1)] if error.expect > 1 else []
        if message is not None and not error.retryable:
            stream.replace(message.id, _instead_of(message, error), self._new_id())
        return []

    def due(self, now: float, chance: Chance) -> list[Message]:
        return [message for stream in self._streams.values() for message in stream.due(now, chance)]

    def is_hopeless(self, now: float) -> bool:
        return any(stream.is_hopeless(now) for stream in self._streams.values())

    @property
    def wake_at(self) -> float | None:
        wakes = (stream.wake_at for stream in self._streams.values())
        return min((wake for wake in wakes if wake is not None), default=None)

    def _put(self, attempt_id: int, payload: Feedback | Result) -> int | None:
        stream = self._streams.get(attempt_id)
        return None if stream is None else stream.put(self._new_id(), payload)

    def _find(self, message_id: str) -> tuple[Stream, Message] | None:
        for stream in self._streams.values():
            message = stream.find(message_id)
            if message is not None:
                return stream, message
        return None

    def _named(self, error: Error) -> tuple[Stream | None, Message | None]:
        found = self._find(error.for_id) if error.for_id is not None else None
        if found is not None:
            return found
        attempt_id = error.task_id
        return (None if attempt_id is None else self._streams.get(attempt_id)), None


def _instead_of(message: Message, error: Error) -> Feedback | Result:
    """What is said where the original was refused for good: the stream has to go on."""
    reason = f"{error.code}: {error.message}"[:1024]
    if isinstance(message.payload, Result):
        return Result(
            task_id=message.payload.task_id,
            status="failed",
            exit_status=message.payload.exit_status or 1 << 8,
            reason=f"the result was refused: {reason}",
        )
    assert isinstance(message.payload, Feedback)
    return Feedback(task_id=message.payload.task_id)
