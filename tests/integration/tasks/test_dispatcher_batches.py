"""The micro-batcher: many callers, few statements; trouble of one is not trouble of all."""

import asyncio
import threading
import uuid
from collections.abc import Iterator, Sequence

import psycopg
import pytest

from core.errors import DatabaseUnavailable, DependencyUnavailable
from core.faults import configure
from core.pg import close_pool, open_pool
from mitosis_protocol.enums import Outcome, ReportAnswer
from tasks import dispatcher as dispatching
from tasks.batcher import Batcher
from tasks.dispatcher import Claim, Dispatcher, Held, close_dispatcher, get_dispatcher
from tasks.rows import ClaimRequest, ClaimVerdict, Report, SettleOp
from tasks.services import claim as claiming
from tasks.services import report as reporting
from tests.property.lab import Lab, lab_fixture, locked_elsewhere, on_pool, pool_dsn, query

lab = pytest.fixture(name="lab")(lab_fixture)


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    yield
    configure(None)


def commit(attempt_id: int, runner_id: int, **more) -> Report:
    given = {"op_id": uuid.uuid4(), "outcome": Outcome.SUCCEEDED, "exit_status": 0, **more}
    return Report(attempt_id=attempt_id, runner_id=runner_id, op=SettleOp.COMMIT, **given)


def test_many_callers_share_few_statements_and_each_gets_its_own_answer(lab: Lab):
    runners = [lab.add_runner(tags=[f"host-{n}"]) for n in range(40)]
    lab.submit(40)

    async def scenario() -> tuple[list[Claim], list[int]]:
        counted = _Counting()
        try:
            claims = await asyncio.gather(
                *[
                    counted.claims.submit(
                        ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), is_exclusive=True)
                    )
                    for runner in runners
                ]
            )
            settled = await asyncio.gather(
                *[
                    counted.settlements.submit(commit(claim.tasks[0].attempt_id, runner))
                    for claim, runner in zip(claims, runners, strict=True)
                ]
            )
        finally:
            await counted.close()
        assert [s.answer for s in settled] == [ReportAnswer.OK] * 40
        return claims, counted.sizes

    claims, sizes = on_pool(scenario)
    assert len({claim.tasks[0].task_id for claim in claims}) == 40
    assert sum(sizes) == 80
    assert len(sizes) <= 6
    assert query("SELECT id FROM active_tasks WHERE group_id = %s", lab.group_id) == []


def test_a_lone_call_runs_at_once_and_alone(lab: Lab):
    lab.submit_one()

    async def scenario() -> list[int]:
        counted = _Counting()
        request = ClaimRequest(runner_id=lab.runner_ids[0], claim_id=uuid.uuid4())
        assert len((await counted.claims.submit(request)).tasks) == 1
        await counted.close()
        return counted.sizes

    assert on_pool(scenario) == [1]


def test_a_report_that_cannot_be_written_does_not_poison_its_batch(lab: Lab):
    lab.submit(5)
    runner = lab.runner_ids[0]
    attempts = [task.attempt_id for task in lab.claim(runner, want=5).tasks]

    async def scenario() -> list[object]:
        calls = [
            reporting.settle([commit(attempt, runner, reason="\x00" if n == 2 else None)])
            for n, attempt in enumerate(attempts)
        ]
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = on_pool(scenario)
    assert isinstance(answers[2], psycopg.Error)
    good = [answer[0].answer for n, answer in enumerate(answers) if n != 2]
    assert good == [ReportAnswer.OK] * 4
    assert len(query("SELECT id FROM active_tasks WHERE group_id = %s", lab.group_id)) == 1


def test_a_caller_cancelled_while_waiting_is_never_sent():
    sent: list[int] = []
    gate = asyncio.Event()

    async def run(batch: Sequence[int]) -> list[int]:
        sent.extend(batch)
        await gate.wait()
        return list(batch)

    async def scenario() -> None:
        batcher = Batcher(run, is_final=lambda _: True, lanes=1)
        first = asyncio.create_task(batcher.submit(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second = asyncio.create_task(batcher.submit(2))
        third = asyncio.create_task(batcher.submit(3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await first == 1
        assert await third == 3
        with pytest.raises(asyncio.CancelledError):
            await second
        await batcher.close()

    asyncio.run(scenario())
    assert sent == [1, 3]


def test_a_caller_cancelled_in_flight_leaves_the_others_their_answers():
    gate = asyncio.Event()

    async def run(batch: Sequence[int]) -> list[int]:
        await gate.wait()
        return [-item for item in batch]

    async def scenario() -> None:
        batcher = Batcher(run, is_final=lambda _: True)
        calls = [asyncio.create_task(batcher.submit(n)) for n in (1, 2, 3)]
        await asyncio.sleep(0.01)
        calls[1].cancel()
        gate.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert answers[0::2] == [-1, -3]
        assert isinstance(answers[1], asyncio.CancelledError)
        await batcher.close()

    asyncio.run(scenario())


def test_a_bug_in_a_batch_reaches_its_callers_and_the_batcher_lives():
    async def run(batch: Sequence[int]) -> list[int]:
        if 13 in batch:
            raise ZeroDivisionError
        return list(batch)

    async def scenario() -> None:
        batcher = Batcher(run, is_final=lambda _: True)
        with pytest.raises(ZeroDivisionError):
            await batcher.submit(13)
        assert await batcher.submit(1) == 1
        await batcher.close()
        with pytest.raises(DatabaseUnavailable):
            await batcher.submit(2)

    asyncio.run(scenario())


def test_closing_refuses_what_waits_and_lets_the_running_end():
    gate = asyncio.Event()

    async def run(batch: Sequence[int]) -> list[int]:
        await gate.wait()
        return list(batch)

    async def scenario() -> None:
        batcher = Batcher(run, is_final=lambda _: True, lanes=1)
        running = asyncio.create_task(batcher.submit(1))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(batcher.submit(2))
        await asyncio.sleep(0)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(DatabaseUnavailable):
            await waiting
        gate.set()
        await closing
        assert await running == 1

    asyncio.run(scenario())


def test_heavy_requests_are_spread_over_batches():
    sizes: list[int] = []

    async def run(batch: Sequence[int]) -> list[int]:
        sizes.append(sum(batch))
        await asyncio.sleep(0)
        return list(batch)

    async def scenario() -> None:
        batcher = Batcher(
            run, is_final=lambda _: True, weight=lambda item: item, max_weight=10, lanes=1
        )
        assert await batcher.submit_all([4, 4, 4, 30, 1]) == [4, 4, 4, 30, 1]
        await batcher.close()

    asyncio.run(scenario())
    assert sizes == [8, 4, 30, 1]


def test_without_a_database_callers_get_a_typed_error():
    async def scenario() -> None:
        await open_pool("host=/nonexistent dbname=none", wait_s=0.2)
        try:
            with pytest.raises(DependencyUnavailable) as caught:
                await claiming.claim_for_worker(runner_id=1)
            assert caught.value.retryable
        finally:
            await close_dispatcher()
            await close_pool()

    asyncio.run(scenario())


def test_a_commit_whose_answer_was_lost_is_resolved_by_asking_again(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    configure("commit.after_commit_before_ack=exc:database#1")
    [settled] = on_pool(lambda: reporting.settle([commit(attempt, runner)]))
    assert settled.answer is ReportAnswer.OK_DUPLICATE
    assert lab.task(task_id)["where"] == "archived"


def test_a_claim_whose_answer_was_lost_hands_out_the_same_attempts(lab: Lab):
    lab.submit(3)
    runner = lab.runner_ids[0]
    configure("claim.after_commit_before_send=exc:database#1")
    tasks = on_pool(
        lambda: claiming.claim_for_session(
            runner_id=runner, session_epoch=0, claim_id=uuid.uuid4(), want=2
        )
    )
    assert len(tasks) == 2
    assert all(task.is_repeat for task in tasks)
    assert len(query("SELECT id FROM task_attempts WHERE runner_id = %s", runner)) == 2


def test_connections_that_die_mid_statement_lose_nothing(lab: Lab):
    lab.submit(60)
    runner = lab.runner_ids[0]
    attempts = [task.attempt_id for task in lab.claim(runner, want=60).tasks]
    killer = _Killer()

    async def settle_as_an_agent_does(report: Report) -> ReportAnswer:
        """Again and again with the same op id, until there is an answer."""
        while True:
            try:
                [settled] = await reporting.settle([report])
            except DatabaseUnavailable:
                await asyncio.sleep(0.01)
            else:
                return settled.answer

    async def scenario() -> list[ReportAnswer]:
        return [await settle_as_an_agent_does(commit(attempt, runner)) for attempt in attempts]

    killer.start()
    answers = on_pool(scenario)
    killer.stop()
    assert set(answers) <= {ReportAnswer.OK, ReportAnswer.OK_DUPLICATE}
    done = query("SELECT id FROM archived_tasks WHERE group_id = %s", lab.group_id)
    assert len(done) == 60
    assert killer.kills > 0


def test_crowded_out_claims_are_asked_again_until_they_are_exact(lab: Lab):
    plain = [lab.add_runner() for _ in range(3)]
    gpu = [lab.add_runner(tags=["gpu"]) for _ in range(3)]
    lab.submit(3)
    lab.submit(3, tags=["gpu"])

    async def scenario() -> list[Claim]:
        claims = get_dispatcher().claims
        return await claims.submit_all(
            [
                ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), is_exclusive=True)
                for runner in [*plain, *gpu]
            ]
        )

    claims = on_pool(scenario)
    assert [claim.verdict for claim in claims] == [ClaimVerdict.TASK] * 6
    assert len({claim.tasks[0].task_id for claim in claims}) == 6


def test_a_row_that_stays_locked_makes_the_caller_try_later(lab: Lab):
    task_id = lab.submit_one()
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    with locked_elsewhere(task_id):
        answer = on_pool(lambda: reporting.finish(Held(attempt, runner)))
    assert answer is ReportAnswer.RETRY_LATER
    assert reporting.finish_sync(Held(attempt, runner)) is ReportAnswer.OK


def test_one_worker_asking_on_many_connections_holds_one_task(lab: Lab):
    lab.submit(20)
    runner = lab.runner_ids[0]

    async def scenario() -> set[int]:
        # Two dispatchers stand for two coordinator processes on one database.
        ones = [_Counting(), _Counting()]
        requests = [
            one.claims.submit(
                ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), is_exclusive=True)
            )
            for _ in range(10)
            for one in ones
        ]
        claims = await asyncio.gather(*requests)
        for one in ones:
            await one.close()
        return {claim.tasks[0].attempt_id for claim in claims}

    assert len(on_pool(scenario)) == 1


def test_one_concurrency_key_is_held_once_whoever_asks(lab: Lab):
    runners = [lab.add_runner() for _ in range(8)]
    lab.submit(30, concurrency_key="k")

    async def scenario() -> list[int]:
        ones = [_Counting(), _Counting()]
        held: list[int] = []
        for _ in range(5):
            claims = await asyncio.gather(
                *[
                    ones[n % 2].claims.submit(ClaimRequest(runner_id=runner, claim_id=uuid.uuid4()))
                    for n, runner in enumerate(runners)
                ]
            )
            tasks = [
                (task.attempt_id, runner)
                for claim, runner in zip(claims, runners, strict=True)
                for task in claim.tasks
            ]
            held.append(len(tasks))
            for attempt, runner in tasks:
                await ones[0].settlements.submit(commit(attempt, runner))
        for one in ones:
            await one.close()
        return held

    assert on_pool(scenario) == [1] * 5


class _Counting(Dispatcher):
    """A dispatcher that remembers how large its batches were."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        super().__init__(backoff_s=0, backoff_max_s=0)

    async def _claim(self, requests: Sequence[ClaimRequest]) -> list[Claim]:
        self.sizes.append(len(requests))
        return await super()._claim(requests)

    async def _settle(self, reports: Sequence[Report]) -> list[dispatching.Settled]:
        self.sizes.append(len(reports))
        return await super()._settle(reports)


class _Killer(threading.Thread):
    """Ends the pool's connections in the middle of their statements, again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.kills = 0
        self._may_end = threading.Event()

    def run(self) -> None:
        with psycopg.connect(pool_dsn(), autocommit=True, application_name="killer") as conn:
            while not self._may_end.wait(0.002):
                killed = conn.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE state = 'active' AND pid <> pg_backend_pid()"
                    " AND datname = current_database() AND query LIKE '%%settle/tail%%'"
                ).rowcount
                self.kills += killed
                # A new connection plans its statements first; let it get one through.
                if killed and self._may_end.wait(0.1):
                    return

    def stop(self) -> None:
        self._may_end.set()
        self.join(5)
