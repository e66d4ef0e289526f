"""What a managed worker holds between two answers of its agent."""

from collections import deque
from pathlib import Path

from mitosis_protocol.ipc import (
    Done,
    DropTask,
    FetchReply,
    FetchTask,
    FinishTask,
    FromWorker,
    ToWorker,
    WorkerSettings,
    WorkItem,
)
from nodeagent.ipc.server import ServiceName
from nodeagent.worker.comm import Commit, TaskOffer
from nodeagent.worker.ipc_comm import IpcComm
from tests.fakes.ipc_agent import make_item


class Agent:
    """Answers from a script and keeps what it heard."""

    def __init__(self) -> None:
        self.heard: list[FromWorker] = []
        self.along: deque[WorkItem | None] = deque()
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
        item = self.along.popleft() if self.along else None
        if isinstance(message, FetchTask):
            return FetchReply(request_id=message.request_id, item=item)
        return Done(request_id=message.request_id, next_item=item)

    def close(self) -> None:
        return None

    async def fetch(self) -> TaskOffer:
        offer = await self.comm.fetch()
        assert offer is not None
        return offer

    def kinds(self) -> list[str]:
        return [type(message).__name__ for message in self.heard]


async def test_an_attempt_that_came_along_is_the_next_one_without_another_question() -> None:
    agent = Agent()
    agent.along += [make_item(1), make_item(2), None, make_item(3)]
    for attempt_id in (1, 2):
        offer = await agent.fetch()
        assert offer.attempt_id == attempt_id
        await agent.comm.report(offer, Commit(0))
    assert agent.kinds() == ["FetchTask", "FinishTask", "FinishTask"]
    assert (await agent.fetch()).attempt_id == 3, "asked for, because nothing came along"


async def test_one_that_came_along_is_given_back_by_a_worker_that_leaves() -> None:
    agent = Agent()
    agent.along += [make_item(1), make_item(2)]
    await agent.comm.report(await agent.fetch(), Commit(0))
    await agent.comm.unregister()
    drop = agent.heard[-1]
    assert isinstance(drop, DropTask)
    assert (drop.attempt_id, drop.has_started) == (2, False)
    await agent.comm.unregister()
    assert agent.heard[-1] is drop, "once"


async def test_a_leaving_worker_wants_nothing_along() -> None:
    agent = Agent()
    agent.along += [make_item(1)]
    offer = await agent.fetch()
    agent.is_leaving = True
    await agent.comm.report(offer, Commit(0))
    finish = agent.heard[-1]
    assert isinstance(finish, FinishTask)
    assert not finish.wants_next
