"""Claims of many managers, gathered into one statement. Called by the manager socket.

Nothing waits on purpose (tasks.batcher): a lone fetch runs at once, what arrives meanwhile forms
the next batch. The statement is that of tasks.services.suite_claim; a repeated `claim_id` gives
the same attempts.
"""

import asyncio
from collections.abc import Sequence
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

from core.errors import AuthenticationFailed, LeaseLost, Superseded
from core.faults import afault
from core.pg import get_pool
from mitosis_protocol.errors import ErrorCode
from tasks import store
from tasks.batcher import Batcher
from tasks.dispatcher import CLAIMED, MAX_BATCH
from tasks.rows import ClaimRow, ClaimVerdict, CountRow
from tasks.services.suite_surplus import close_tail_watch, tail_watch
from tasks.statements import Params, Statement, array


class EngagementRow(msgspec.Struct, frozen=True):
    ord: int
    assignment_id: int


class ManagerClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One fetch; `assignment_id` None stands for the engagement the manager has."""

    runner_id: int
    session_epoch: int
    claim_id: UUID
    want: int = 1
    assignment_id: int | None = None


class Granted(msgspec.Struct, frozen=True):
    verdict: ClaimVerdict
    rows: tuple[ClaimRow, ...] = ()


ENGAGEMENTS: Final = Statement(EngagementRow, "suite/engagements")
SUITE_CAPPED: Final = Statement(CountRow, "suite/capped")
_batchers: WeakKeyDictionary[asyncio.AbstractEventLoop, Batcher[ManagerClaim, Granted]] = (
    WeakKeyDictionary()
)


async def claim_tasks(claim: ManagerClaim) -> tuple[ClaimRow, ...]:
    """Up to `want` tasks. Raises Superseded, AuthenticationFailed (revoked) and LeaseLost."""
    granted = await _batcher().submit(claim)
    if granted.verdict is ClaimVerdict.REVOKED:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
    if granted.verdict is ClaimVerdict.SUPERSEDED:
        raise Superseded("a newer session of this manager took over")
    if granted.verdict is ClaimVerdict.LEASE_LOST:
        raise LeaseLost("the lease of this manager has ended")
    if granted.rows:
        tail_watch().was_fed(claim.runner_id)
    else:
        tail_watch().came_back_empty(claim.runner_id)
    return granted.rows


async def close_manager_claims() -> None:
    """Called by the lifespan before the pool closes."""
    await close_tail_watch()
    batcher = _batchers.pop(asyncio.get_running_loop(), None)
    if batcher is not None:
        await batcher.close()


def _batcher() -> Batcher[ManagerClaim, Granted]:
    loop = asyncio.get_running_loop()
    if loop not in _batchers:
        _batchers[loop] = Batcher(
            _claim,
            is_final=lambda granted: granted.verdict is not ClaimVerdict.AGAIN,
            weight=lambda claim: claim.want,
            max_weight=MAX_BATCH,
        )
    return _batchers[loop]


async def _claim(claims: Sequence[ManagerClaim]) -> list[Granted]:
    async with get_pool().connection() as conn:
        ids = [claim.assignment_id for claim in claims]
        if None in ids:
            runners = {"runner_ids": array(claim.runner_id for claim in claims)}
            found = await ENGAGEMENTS.fetch_on(conn, runners)
            ids = [one or row.assignment_id for one, row in zip(ids, found, strict=True)]
        rows = await _hand_out(conn, claims, ids)
    await afault("claim.after_commit_before_send")
    CLAIMED.of("suite").inc(sum(row.attempt_id is not None for row in rows))
    return _granted(rows, len(claims))


async def _hand_out(
    conn: AsyncConnection[TupleRow],
    claims: Sequence[ManagerClaim],
    assignment_ids: Sequence[int | None],
) -> list[ClaimRow]:
    """A statement is a transaction by itself; only where `max_running` counts it needs a turn."""
    engagements = {"assignment_ids": array(assignment_ids)}
    params = _params(claims, assignment_ids)
    [capped] = await SUITE_CAPPED.fetch_on(conn, engagements)
    if capped.count == 0:
        await afault("claim.before_commit")
        return await store.CLAIM_FOR_SUITE.fetch_on(conn, params)
    async with conn.transaction():
        # The lock in a statement of its own: the claim must see what the last holder did.
        await store.SUITE_CAP.fetch_on(conn, engagements)
        await afault("claim.before_commit")
        return await store.CLAIM_FOR_SUITE.fetch_on(conn, params)


def _params(claims: Sequence[ManagerClaim], assignment_ids: Sequence[int | None]) -> Params:
    return {
        "runner_ids": array(claim.runner_id for claim in claims),
        "session_epochs": array(claim.session_epoch for claim in claims),
        "claim_ids": array(claim.claim_id for claim in claims),
        "wants": array(claim.want for claim in claims),
        "assignment_ids": array(assignment_ids),
    }


def _granted(rows: Sequence[ClaimRow], count: int) -> list[Granted]:
    verdicts = [ClaimVerdict.NOTHING] * count
    given: list[list[ClaimRow]] = [[] for _ in range(count)]
    for row in rows:
        verdicts[row.ord - 1] = ClaimVerdict(row.verdict)
        if row.attempt_id is not None:
            given[row.ord - 1].append(row)
    return [Granted(one, tuple(tasks)) for one, tasks in zip(verdicts, given, strict=True)]
