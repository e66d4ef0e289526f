"""What a managed worker holds between two answers of its agent."""

import asyncio
from collections import deque
from pathlib import Path

import pytest

from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.ipc import (
    Done,
    DropTask,
    FetchReply,
    FetchTask,
    FinishTask,
    FromWorker,
    Refused,
    ToWorker,
    WorkerSettings,
    WorkItem,
)
from nodeagent.errors import FatalError
from nodeagent.ipc.server import ServiceName
from nodeagent.worker.comm import Commit, TaskOffer
from nodeagent.worker.ipc_comm import IpcComm
from tests.fakes.ipc_agent import make_item


class Agent:
    """Answers from a script and keeps what it heard; what was only posted waits for `answer`."""

    def __init__(self) -> None:
        self.heard: list[FromWorker] = []
        self.along: deque[list[WorkItem]] = deque()
        self.unanswered: list[tuple[FromWorker, asyncio.Future[ToWorker]]] = []
        self.looks = 0
        self.is_leaving = False
        self.comm = IpcComm(
            self,
            Path("/nowhere"),
            WorkerSettings(),
            on_over=lambda: None,
            is_leaving=lambda: self.is_leaving,
        )

    def next_id(self) -> int:
        return len(self.heard) + 1

    async def ask(self, service: ServiceName, message: FromWorker) -> ToWorker:
        self.heard.append(message)
        items = self.along.popleft() if self.along else []
        if isinstance(message, FetchTask):
            return FetchReply(request_id=message.request_id, item=items[0])
        return Done(request_id=message.request_id, next_items=items)

    def post(self, service: ServiceName, message: FromWorker) -> asyncio.Future[ToWorker]:
        self.heard.append(message)
        answer: asyncio.Future[ToWorker] = asyncio.get_running_loop().create_future()
        self.unanswered.append((message, answer))
        return answer

    def look(self) -> None:
        self.looks += 1

    def close(self) -> None:
        return None

    def answer(self, *items: WorkItem, refused: Refused | None = None) -> None:
        """The oldest of what was only posted."""
        message, answer = self.unanswered.pop(0)
        answer.set_result(refused or Done(request_id=message.request_id, next_items=list(items)))

    async def fetch(self) -> TaskOffer:
        offer = await self.comm.fetch()
        assert offer is not None
        return offer

    async def pair(self) -> TaskOffer:
        """The first of two attempts; the second is in hand, too."""
        self.along += [[make_item(1)], [make_item(2), make_item(3)]]
        await self.comm.report(await self.fetch(), Commit(0))
        return await self.fetch()

    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.heard]


async def test_an_attempt_that_came_along_is_the_next_one_without_another_question() -> None:
    agent = Agent()
    agent.along += [[make_item(1)], [make_item(2)], [], [make_item(3)]]
    for attempt_id in (1, 2):
        offer = await agent.fetch()
        assert offer.attempt_id == attempt_id
        await agent.comm.report(offer, Commit(0))
    assert agent.kinds() == ["FetchTask", "FinishTask", "FinishTask"]
    assert (await agent.fetch()).attempt_id == 3, "asked for, because nothing came along"


async def test_one_that_came_along_is_given_back_by_a_worker_that_leaves() -> None:
    agent = Agent()
    agent.along += [[make_item(1)], [make_item(2)]]
    await agent.comm.report(await agent.fetch(), Commit(0))
    await agent.comm.unregister()
    drop = agent.heard[-1]
    assert isinstance(drop, DropTask)
    assert (drop.attempt_id, drop.has_started) == (2, False)
    await agent.comm.unregister()
    assert agent.heard[-1] is drop, "once"


async def test_a_leaving_worker_wants_nothing_along() -> None:
    agent = Agent()
    agent.along += [[make_item(1)]]
    offer = await agent.fetch()
    agent.is_leaving = True
    await agent.comm.report(offer, Commit(0))
    finish = agent.heard[-1]
    assert isinstance(finish, FinishTask)
    assert not finish.wants_next


async def test_with_one_ahead_nobody_waits_for_the_answer_to_a_result() -> None:
    agent = Agent()
    first = await agent.pair()
    await agent.comm.report(first, Commit(0))
    said = agent.heard[-1]
    assert isinstance(said, FinishTask)
    assert (said.attempt_id, said.is_patient, said.wants_next) == (2, True, True)
    second = await agent.fetch()
    assert second.attempt_id == 3, "begun before the answer"
    agent.answer(make_item(4))
    await agent.comm.report(second, Commit(0))
    assert (await agent.fetch()).attempt_id == 4
    assert agent.kinds() == ["FetchTask", "FinishTask", "FinishTask", "FinishTask"]


async def test_there_is_one_unanswered_last_word_at_a_time() -> None:
    agent = Agent()
    await agent.comm.report(await agent.pair(), Commit(0))
    reporting = asyncio.create_task(agent.comm.report(await agent.fetch(), Commit(0)))
    await asyncio.sleep(0.02)
    assert not reporting.done()
    assert agent.looks > 1, "nobody rings for the answer"
    assert agent.kinds().count("FinishTask") == 2
    agent.answer()
    await reporting
    assert agent.kinds().count("FinishTask") == 3


async def test_what_waits_behind_a_long_command_goes_back() -> None:
    agent = Agent()
    await agent.comm.report(await agent.pair(), Commit(0))
    await agent.fetch()
    agent.answer(make_item(4))
    await asyncio.sleep(0.2)
    drop = agent.heard[-1]
    assert isinstance(drop, DropTask)
    assert (drop.attempt_id, drop.has_started) == (4, False)


async def test_a_result_that_could_not_be_kept_is_said_again() -> None:
    agent = Agent()
    await agent.comm.report(await agent.pair(), Commit(0))
    agent.answer(
        refused=Refused(
            request_id=3,
            code=ErrorCode.DEPENDENCY_UNAVAILABLE,
            message="disk full",
            is_retryable=True,
        )
    )
    leaving = asyncio.create_task(agent.comm.unregister())
    while len(agent.unanswered) == 0:  # noqa: ASYNC110 - said after a pause
        await asyncio.sleep(0.01)
    again = agent.heard[-1]
    assert isinstance(again, FinishTask)
    assert again.attempt_id == 2
    agent.answer()
    await leaving
    assert [one.attempt_id for one in agent.heard if isinstance(one, DropTask)] == [3]


async def test_a_result_that_nobody_takes_ends_the_worker() -> None:
    agent = Agent()
    await agent.comm.report(await agent.pair(), Commit(0))
    second = await agent.fetch()
    agent.answer(
        refused=Refused(request_id=3, code=ErrorCode.REQUEST_INVALID, message="no such thing")
    )
    with pytest.raises(FatalError, match="attempt 2 cannot be settled"):
        await agent.comm.report(second, Commit(0))


async def test_a_leaving_worker_hears_its_last_word_out() -> None:
    agent = Agent()
    await agent.comm.report(await agent.pair(), Commit(0))
    closing = asyncio.create_task(agent.comm.close())
    await asyncio.sleep(0.01)
    assert not closing.done()
    agent.answer()
    await closing
