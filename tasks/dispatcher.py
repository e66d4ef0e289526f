"""Claims and reports of many sessions, gathered into few statements.

One Dispatcher per process (per event loop). It knows which statement answers which call, when to
ask again, and what a row means; policy stays in tasks.services, SQL in tasks.store.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from django.conf import settings

from core.counters import counter, one_of
from core.faults import afault
from mitosis_protocol.enums import Outcome, ReportAnswer
from tasks import store
from tasks.batcher import Batcher
from tasks.rows import (
    ClaimedTask,
    ClaimRequest,
    ClaimRow,
    ClaimVerdict,
    Report,
    SettleRow,
    UploadRequest,
    UploadRow,
)

Answer = TypeVar("Answer")

# Tasks of one claim statement and reports of one settle statement: beyond this the time per task
# hardly falls any more (measured: 61 us at 64, 45 at 256), while everybody waits for the batch.
MAX_BATCH: Final = 256

CLAIMED: Final = counter(
    "mitosis_tasks_claimed",
    "Attempts handed out by this process",
    one_of("queue", ("group", "suite")),
)
SETTLED: Final = counter(
    "mitosis_tasks_settled",
    "Reports this process accepted: the end of a task by its outcome, or `requeued`, or `kept`",
    one_of("outcome", (*(outcome.value for outcome in Outcome), "requeued", "kept")),
)


class Claim(msgspec.Struct, frozen=True):
    """The answer to one fetch; `verdict` tells an idle queue from a runner that may not ask."""

    verdict: ClaimVerdict
    tasks: tuple[ClaimedTask, ...] = ()


class Settled(msgspec.Struct, frozen=True):
    """What became of a report. `action` is set for OK: the task ended, waits again, or is kept."""

    answer: ReportAnswer
    action: str | None = None
    task_id: int | None = None
    suite_id: int | None = None
    outcome: Outcome | None = None
    failures: int | None = None
    is_excluded: bool = False


class Started(msgspec.Struct, frozen=True):
    """`is_cancelled`: a cancel came first, do not run the command."""

    answer: ReportAnswer
    is_cancelled: bool = False


class Held(msgspec.Struct, frozen=True):
    """An attempt in a runner's hands; `is_cancelled` only matters for a finish."""

    attempt_id: int
    runner_id: int
    is_cancelled: bool = False


class Progress(msgspec.Struct, frozen=True):
    attempt_id: int
    runner_id: int
    data: str


class Dispatcher:
    """The batchers of one process."""

    def __init__(self, *, backoff_s: float, backoff_max_s: float) -> None:
        self._backoff_s = backoff_s
        self._backoff_max_s = backoff_max_s
        self.claims = Batcher(
            self._claim,
            is_final=lambda claim: claim.verdict is not ClaimVerdict.AGAIN,
            weight=lambda request: request.want,
            max_weight=MAX_BATCH,
        )
        self.settlements = Batcher(
            self._settle, is_final=lambda s: s.answer is not ReportAnswer.RETRY_LATER
        )
        self.starts = Batcher(
            self._start, is_final=lambda s: s.answer is not ReportAnswer.RETRY_LATER, lanes=1
        )
        self.finishes = Batcher(
            self._finish, is_final=lambda answer: answer is not ReportAnswer.RETRY_LATER
        )
        self.progress = Batcher(
            self._progress, is_final=lambda answer: answer is not ReportAnswer.RETRY_LATER, lanes=1
        )
        # One lane: two statements would only find each other's group locked.
        self.uploads = Batcher(
            self._issue_uploads, is_final=lambda row: row.answer != "busy", lanes=1
        )

    async def close(self) -> None:
        """Let running statements end and refuse the rest."""
        await self.claims.close()
        await self.settlements.close()
        await self.starts.close()
        await self.finishes.close()
        await self.progress.close()
        await self.uploads.close()

    async def _claim(self, requests: Sequence[ClaimRequest]) -> list[Claim]:
        await afault("claim.before_commit")
        rows = await store.CLAIM.fetch(store.claim_params(requests))
        await afault("claim.after_commit_before_send")
        CLAIMED.of("group").inc(sum(row.attempt_id is not None for row in rows))
        return claims_of(rows, len(requests))

    async def _settle(self, reports: Sequence[Report]) -> list[Settled]:
        params = store.settle_params(
            reports, backoff_s=self._backoff_s, backoff_max_s=self._backoff_max_s
        )
        await afault("commit.in_txn")
        rows = await store.SETTLE.fetch(params)
        await afault("commit.after_commit_before_ack")
        return counted([settled_of(row) for row in rows])

    async def _start(self, held: Sequence[Held]) -> list[Started]:
        rows = await store.START.fetch(
            store.start_params((item.attempt_id, item.runner_id) for item in held)
        )
        return [Started(answer_of(row.answer), row.is_cancelled) for row in rows]

    async def _finish(self, held: Sequence[Held]) -> list[ReportAnswer]:
        params = store.finish_params(
            (item.attempt_id, item.runner_id, item.is_cancelled) for item in held
        )
        return [answer_of(row.answer) for row in await store.FINISH.fetch(params)]

    async def _progress(self, items: Sequence[Progress]) -> list[ReportAnswer]:
        params = store.progress_params(
            [(item.attempt_id, item.runner_id, item.data) for item in items]
        )
        return [answer_of(row.answer) for row in await store.APPEND_PROGRESS.fetch(params)]

    async def _issue_uploads(self, requests: Sequence[UploadRequest]) -> list[UploadRow]:
        rows = await store.ISSUE_UPLOADS.fetch(store.upload_params(requests))
        return exact_uploads(rows)


_dispatchers: WeakKeyDictionary[asyncio.AbstractEventLoop, Dispatcher] = WeakKeyDictionary()


def get_dispatcher() -> Dispatcher:
    """The dispatcher of the running event loop; a serving process has one."""
    loop = asyncio.get_running_loop()
    dispatcher = _dispatchers.get(loop)
    if dispatcher is None:
        policy = settings.MITOSIS
        dispatcher = Dispatcher(
            backoff_s=policy.retry_backoff_s, backoff_max_s=policy.retry_backoff_max_s
        )
        _dispatchers[loop] = dispatcher
    return dispatcher


async def close_dispatcher() -> None:
    """Called by the lifespan before the pool closes; nothing happens if none was made."""
    dispatcher = _dispatchers.pop(asyncio.get_running_loop(), None)
    if dispatcher is not None:
        await dispatcher.close()


def claims_of(rows: Sequence[ClaimRow], count: int) -> list[Claim]:
    """One Claim per request from the rows of all of them."""
    verdicts = [ClaimVerdict.NOTHING] * count
    tasks: list[list[ClaimedTask]] = [[] for _ in range(count)]
    for row in rows:
        verdicts[row.ord - 1] = ClaimVerdict(row.verdict)
        if row.attempt_id is not None:
            tasks[row.ord - 1].append(_claimed_task(row))
    return [Claim(verdict, tuple(given)) for verdict, given in zip(verdicts, tasks, strict=True)]


def settled_of(row: SettleRow) -> Settled:
    """`end`, `requeue` and `keep` are what was done; every other word is a refusal."""
    is_done = row.answer in {"end", "requeue", "keep"}
    return Settled(
        answer=ReportAnswer.OK if is_done else answer_of(row.answer),
        action=row.answer if is_done else None,
        task_id=row.task_id,
        suite_id=row.suite_id,
        outcome=None if row.outcome is None else Outcome.from_code(row.outcome),
        failures=row.failures,
        is_excluded=bool(row.is_excluded),
    )


def exact_uploads(rows: Sequence[UploadRow]) -> list[UploadRow]:
    """The same; who was refused for the quota beside others asks again, as it may fit alone."""
    if len(rows) == 1:
        return list(rows)
    return [
        msgspec.structs.replace(row, answer="busy") if row.answer == "quota" else row
        for row in rows
    ]


def counted(settled: list[Settled]) -> list[Settled]:
    """The same, after they were counted."""
    for one in settled:
        if one.action == "end" and one.outcome is not None:
            SETTLED.of(one.outcome.value).inc()
        elif one.action is not None:
            SETTLED.of("requeued" if one.action == "requeue" else "kept").inc()
    return settled


def answer_of(word: str) -> ReportAnswer:
    """The SQL's word as the answer on the wire."""
    return ReportAnswer.RETRY_LATER if word == "busy" else ReportAnswer.parse(word)


def _claimed_task(row: ClaimRow) -> ClaimedTask:
    return ClaimedTask(
        attempt_id=row.attempt_id or 0,
        task_id=row.task_id or 0,
        uuid=_present(row.uuid),
        attempt=row.attempt or 0,
        group_id=row.group_id or 0,
        suite_id=row.suite_id,
        timeout_s=row.timeout_s or 0,
        spec=_raw(_present(row.spec)),
        upstream_task_uuid=row.upstream_task_uuid,
        limits=None if row.limits is None else _raw(row.limits),
        middleware=None if row.middleware is None else _raw(row.middleware),
        max_failures=row.max_failures or 0,
        is_repeat=bool(row.is_repeat),
        priority=row.priority or 0,
        concurrency_key=row.concurrency_key,
        affinity=None if row.affinity is None else _raw(row.affinity),
        resource_refs=None if row.resource_refs is None else _raw(row.resource_refs),
    )


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _present(value: Answer | None) -> Answer:
    if value is None:
        raise AssertionError("a claim row with an attempt has all its columns")
    return value
