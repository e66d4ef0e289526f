"""What a managed worker has beside the command it runs: attempts ahead, and a word not waited for.

With one ahead a worker says its last word on an attempt and begins the next command at once; the
answer is looked for when that has ended, so nobody has to wake the worker for it. A command that
takes its time keeps nothing from others: what waits behind it goes back to the agent. Owned by
ipc_comm.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import msgspec

from mitosis_protocol.ipc import Done, DropTask, FinishTask, Refused, ToWorker, WorkItem
from nodeagent.errors import FatalError, WorkerRemoved
from nodeagent.ipc.client import IpcClient

# What waits longer than this (and at most twice as long) behind a command goes back.
PATIENCE_S: Final = 0.05
_LOOK_S: Final = 0.0005
_LONGEST_LOOK_S: Final = 0.02  # of an agent that is busy, or waits for its disk
_RETRY_S: Final = 0.5


class _LastWord(NamedTuple):
    """A result that was said, and its answer."""

    message: FinishTask
    answer: "asyncio.Future[ToWorker]"


class Ahead:
    """Filled by answers to results; `in_hand` tells which attempt is being run."""

    def __init__(self, client: IpcClient, in_hand: Callable[[], int | None]) -> None:
        self._client = client
        self._in_hand = in_hand
        self._items: deque[WorkItem] = deque()
        self._last_word: _LastWord | None = None
        self._watching: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._items)

    def add(self, items: Collection[WorkItem]) -> None:
        self._items.extend(items)
        if len(self._items) > 1:
            self._watch()

    def take(self) -> WorkItem | None:
        """The next one to run."""
        return self._items.popleft() if self._items else None

    def say(self, message: FinishTask) -> None:
        """Before the next command begins: should we die with that one, the agent knows which of
        the two it was.
        """
        self._last_word = _LastWord(message, self._client.post("report", message))
        self._watch()

    async def hear_out(self) -> None:
        """The answer to the last word. Raises FatalError if nobody will ever take it."""
        while (word := self._last_word) is not None:
            self._client.look()
            pause_s = _LOOK_S
            while not word.answer.done():
                # Nobody rings for an answer that was not urgent.
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_LOOK_S)
                self._client.look()
            answer = word.answer.result()
            if isinstance(answer, Refused) and answer.is_retryable:
                await asyncio.sleep(_RETRY_S)
                again = msgspec.structs.replace(word.message, request_id=self._client.next_id())
                self._last_word = _LastWord(again, self._client.post("report", again))
                continue
            self._last_word = None
            self._accept(word, answer)

    def drop_next(self) -> DropTask | None:
        """The word that gives the next one back, unstarted."""
        item = self.take()
        if item is None:
            return None
        return DropTask(
            request_id=self._client.next_id(), attempt_id=item.task.task_id, has_started=False
        )

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    def _accept(self, word: _LastWord, answer: ToWorker) -> None:
        if isinstance(answer, Done):
            self._items.extend(answer.next_items)
        elif not (isinstance(answer, Refused) and answer.is_gone):
            # Our exit tells the agent to see to it.
            raise FatalError(f"attempt {word.message.attempt_id} cannot be settled: {answer}")

    # The command that runs

    def _watch(self) -> None:
        if self._watching is None:
            loop = asyncio.get_running_loop()
            self._watching = loop.call_later(PATIENCE_S, self._look_round, self._in_hand())

    def _look_round(self, was_in_hand: int | None) -> None:
        self._watching = None
        self._client.look()
        word = self._last_word
        if word is not None and word.answer.done() and word.answer.exception() is None:
            answer = word.answer.result()
            if isinstance(answer, Done):
                self._items.extend(answer.next_items)
                self._last_word = None
        in_hand = self._in_hand()
        if in_hand is not None and in_hand == was_in_hand:
            self._give_back()
        if self._items or self._last_word is not None:
            self._watch()

    def _give_back(self) -> None:
        # Without an agent nobody hears it, and the next heartbeat ends us.
        with contextlib.suppress(WorkerRemoved):
            while (dropping := self.drop_next()) is not None:
                self._client.post("report", dropping).add_done_callback(_overlook)


def _overlook(answer: "asyncio.Future[ToWorker]") -> None:
    if not answer.cancelled():
        answer.exception()
