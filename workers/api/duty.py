"""Fetch: `GET /workers/tasks` hands out an attempt, on the dispatcher and without threads.

The claim statement decides; a busy worker gets the attempt it holds, so a lost answer costs one
poll and a worker never holds two.
"""

from uuid import uuid4

from django.http import HttpRequest, HttpResponse

from accounts.identity import Identity
from core.errors import AuthenticationFailed
from mitosis_protocol.errors import ErrorCode
from tasks.dispatcher import get_dispatcher
from tasks.rows import ClaimedTask, ClaimRequest, ClaimVerdict
from workers.api.announcement import lease_ttl_s
from workers.api.endpoint import answer, never_fails
from workers.api.leaving import leave
from workers.api.wire import offer_of
from workers.services.heartbeat import record_beat


@never_fails
async def fetch(request: HttpRequest, identity: Identity) -> HttpResponse:
    """A task, the one already held, or `null`."""
    task = await _claim(request, identity)
    return answer(None if task is None else offer_of(task))


async def _claim(request: HttpRequest, identity: Identity) -> ClaimedTask | None:
    # Not tasks.services.claim: that answers None both for an idle queue and for a worker that
    # may not ask any more, and the two are different statuses here.
    claims = get_dispatcher().claims
    asked = ClaimRequest(runner_id=identity.id, claim_id=uuid4(), is_exclusive=True)
    claim = await claims.submit(asked)
    if claim.verdict is ClaimVerdict.LEASE_LOST:
        # After a long outage fetches arrive before the first beat. Whoever asks for work lives.
        await record_beat(identity, ttl_s=lease_ttl_s(request))
        claim = await claims.submit(asked)
    is_gone = claim.verdict is ClaimVerdict.REVOKED
    if claim.verdict is ClaimVerdict.INACTIVE:
        # In graceful shutdown, and it asks for work, so it has none: this is its last request.
        # What the database thinks it holds is an answer that got lost; that goes back.
        is_gone = await leave(request, identity, only_if_asked=True)
    if is_gone:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_REVOKED_TOKEN)
    return claim.tasks[0] if claim.tasks else None
