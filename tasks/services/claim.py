"""Hand tasks to runners. Only the database decides who gets what; see tasks/sql/claim.

Called by the worker API (independent), the worker socket (direct) and, once suites exist, the
manager socket. A caller that goes away after the claim loses nothing: the same claim id, or for an
independent worker the next fetch, returns the same attempts.
"""

from collections.abc import Sequence
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction

from core.errors import AuthenticationFailed, LeaseLost, Superseded
from mitosis_protocol.errors import ErrorCode
from tasks import store
from tasks.dispatcher import Claim, claims_of, get_dispatcher
from tasks.rows import ClaimedTask, ClaimRequest, ClaimVerdict
from tasks.services.patience import answer_all


async def claim_for_worker(*, runner_id: int) -> ClaimedTask | None:
    """A task for an independent worker, the one it holds if it is busy, or None.

    Raises AuthenticationFailed (revoked) and LeaseLost (renew the lease first).
    """
    request = ClaimRequest(runner_id=runner_id, claim_id=uuid4(), is_exclusive=True)
    tasks = _entitled(await get_dispatcher().claims.submit(request))
    return tasks[0] if tasks else None


def claim_for_worker_sync(*, runner_id: int) -> ClaimedTask | None:
    """As claim_for_worker, on Django's connection."""
    request = ClaimRequest(runner_id=runner_id, claim_id=uuid4(), is_exclusive=True)
    [claim] = answer_all(
        [request], _claim_once, is_busy=lambda claim: claim.verdict is ClaimVerdict.AGAIN
    )
    tasks = _entitled(claim)
    return tasks[0] if tasks else None


async def claim_for_session(
    *, runner_id: int, session_epoch: int, claim_id: UUID, want: int
) -> tuple[ClaimedTask, ...]:
    """Up to `want` tasks for a direct worker's session; a repeated `claim_id` gives the same.

    Raises Superseded for an older session, AuthenticationFailed and LeaseLost as above.
    """
    request = ClaimRequest(
        runner_id=runner_id, session_epoch=session_epoch, claim_id=claim_id, want=want
    )
    return _entitled(await get_dispatcher().claims.submit(request))


def _claim_once(asked: Sequence[ClaimRequest]) -> list[Claim]:
    try:
        with transaction.atomic():
            return claims_of(store.CLAIM.fetch_sync(store.claim_params(asked)), len(asked))
    except IntegrityError:
        # Another statement granted the same slot at the same time; now we can see it.
        return [Claim(ClaimVerdict.AGAIN)] * len(asked)


def _entitled(claim: Claim) -> tuple[ClaimedTask, ...]:
    if claim.verdict is ClaimVerdict.REVOKED:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
    if claim.verdict is ClaimVerdict.SUPERSEDED:
        raise Superseded("a newer session of this runner took over")
    if claim.verdict is ClaimVerdict.LEASE_LOST:
        raise LeaseLost("the lease of this runner has ended")
    return claim.tasks
