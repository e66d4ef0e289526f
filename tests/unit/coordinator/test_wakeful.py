"""The background loop that runs while there is a reason to."""

import asyncio

from core.errors import DatabaseUnavailable
from managers.wakeful import Wakeful

PATIENCE_S = 20.0


class Work:
    """Counts its runs; `answers` are what they return or raise, False after the last."""

    def __init__(self, *answers: bool | Exception) -> None:
        self.runs = 0
        self.is_running = False
        self._answers = list(answers)
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> bool:
        self.runs += 1
        self.is_running = True
        await self.gate.wait()
        self.is_running = False
        answer = self._answers.pop(0) if self._answers else False
        if isinstance(answer, Exception):
            raise answer
        return answer


def loop_of(work: Work) -> Wakeful:
    return Wakeful("a test", work, gap_s=0.0, again_s=0.01)


async def until_runs(work: Work, runs: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while work.runs < runs:  # noqa: ASYNC110 - the loop under test has no event to wait for
            await asyncio.sleep(0.001)


async def test_wakes_during_a_run_are_one_more_run() -> None:
    work = Work()
    work.gate.clear()
    loop = loop_of(work)
    loop.wake()
    await until_runs(work, 1)
    for _ in range(100):
        loop.wake()
    work.gate.set()
    await until_runs(work, 2)
    await asyncio.sleep(0.05)
    assert work.runs == 2
    await loop.close()


async def test_it_runs_again_while_the_work_says_so_and_after_the_next_wake() -> None:
    work = Work(True, True, False)
    loop = loop_of(work)
    loop.wake()
    await until_runs(work, 3)
    await asyncio.sleep(0.05)
    assert work.runs == 3
    loop.wake()
    await until_runs(work, 4)
    await loop.close()


async def test_a_database_that_is_away_is_tried_again_and_a_bug_ends_one_run_only() -> None:
    work = Work(DatabaseUnavailable(), RuntimeError("a bug"))
    loop = loop_of(work)
    loop.wake()
    await until_runs(work, 2)
    await asyncio.sleep(0.05)
    loop.wake()
    await until_runs(work, 3)
    await loop.close()


async def test_closing_waits_for_the_work_and_wakes_nothing_any_more() -> None:
    work = Work(True)
    work.gate.clear()
    loop = loop_of(work)
    loop.wake()
    await until_runs(work, 1)
    closing = asyncio.create_task(loop.close())
    await asyncio.sleep(0.05)
    assert work.is_running
    assert not closing.done()
    work.gate.set()
    async with asyncio.timeout(PATIENCE_S):
        await closing
    loop.wake()
    await asyncio.sleep(0.05)
    assert work.runs == 1
