"""Hand tasks of a suite to the managers engaged with it. Called by the manager socket.

`assignment_id` is the fence: an engagement that is over or not prepared yet gets nothing, nor does
one whose suite is paused, blocked or ended. A repeated `claim_id` gives the same attempts.
"""

from uuid import UUID

import msgspec
from django.db import IntegrityError, transaction

from core.errors import AuthenticationFailed, LeaseLost, Superseded
from core.faults import afault
from core.pg import get_pool
from mitosis_protocol.errors import ErrorCode
from tasks import store
from tasks.dispatcher import Claim, claims_of
from tasks.rows import ClaimedTask, ClaimVerdict
from tasks.services.patience import answer_all
from tasks.statements import Params, array


class SuiteClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One fetch of a manager; `session_epoch` None skips that check."""

    runner_id: int
    assignment_id: int
    claim_id: UUID
    want: int = 1
    session_epoch: int | None = None


async def claim_for_manager(request: SuiteClaim) -> tuple[ClaimedTask, ...]:
    """Up to `want` tasks. Raises Superseded, AuthenticationFailed (revoked) and LeaseLost."""
    async with get_pool().connection() as conn, conn.transaction():
        # The lock in a statement of its own: the claim must see what the last holder did.
        await store.SUITE_CAP.fetch_on(conn, {"assignment_ids": array([request.assignment_id])})
        await afault("claim.before_commit")
        rows = await store.CLAIM_FOR_SUITE.fetch_on(conn, _params(request))
    await afault("claim.after_commit_before_send")
    [claim] = claims_of(rows, 1)
    return _entitled(claim)


def claim_for_manager_sync(request: SuiteClaim) -> tuple[ClaimedTask, ...]:
    """As claim_for_manager, on Django's connection; tries again while others are in the way."""
    [claim] = answer_all(
        [request],
        lambda asked: [_claim_once(one) for one in asked],
        is_busy=lambda claim: claim.verdict is ClaimVerdict.AGAIN,
    )
    return _entitled(claim)


def _claim_once(request: SuiteClaim) -> Claim:
    try:
        with transaction.atomic():
            store.SUITE_CAP.fetch_sync({"assignment_ids": array([request.assignment_id])})
            [claim] = claims_of(store.CLAIM_FOR_SUITE.fetch_sync(_params(request)), 1)
            return claim
    except IntegrityError:
        # Another statement took the same concurrency key at the same time; now we can see it.
        return Claim(ClaimVerdict.AGAIN)


def _params(request: SuiteClaim) -> Params:
    return {
        "runner_ids": array([request.runner_id]),
        "session_epochs": array([request.session_epoch]),
        "claim_ids": array([request.claim_id]),
        "wants": array([request.want]),
        "assignment_ids": array([request.assignment_id]),
    }


def _entitled(claim: Claim) -> tuple[ClaimedTask, ...]:
    if claim.verdict is ClaimVerdict.REVOKED:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
    if claim.verdict is ClaimVerdict.SUPERSEDED:
        raise Superseded("a newer session of this runner took over")
    if claim.verdict is ClaimVerdict.LEASE_LOST:
        raise LeaseLost("the lease of this runner has ended")
    return claim.tasks
