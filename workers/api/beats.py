"""Heartbeats: the existing one, what ours add to it, and the one with metadata.

A beat renews the lease, which alone decides whether a worker lives. Existing workers are answered
`null` whatever happens; ours learn which attempts to stop.
"""

from typing import Final

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from accounts.actors import SYSTEM
from accounts.identity import Identity
from core.errors import PermissionDenied, TooLarge
from core.pg import get_pool, load_sql
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import KIB
from runners.models import Runner
from tasks.services.heartbeat import reconcile
from workers.api.announcement import is_ours, lease_ttl_s
from workers.api.endpoint import answer, in_thread, never_fails, read_json
from workers.api.leaving import take_back
from workers.api.wire import BeatBody, MetadataBeat
from workers.services.departure import remove_worker
from workers.services.heartbeat import record_beat

_HELD: Final = load_sql("workers", "held_by_worker")
_HELD_OR_LOST: Final = load_sql("workers", "held_or_lost")
# The existing server's rule: a worker that lets a task run this much longer than its timeout is
# broken and loses both the task and its registration.
OVERRUN_S: Final = 60.0
# Host, pid, version, counters; not a place for logs.
MAX_METADATA_BYTES: Final = 16 * KIB


@never_fails
async def heartbeat(request: HttpRequest, identity: Identity) -> HttpResponse:
    """`POST /workers/heartbeat`."""
    was_lost = await record_beat(identity, ttl_s=lease_ttl_s(request))
    if is_ours(request):
        return answer(await _stop_orders(request, identity))
    if was_lost:
        await _adopt_back(identity)
    await _remove_if_overrun(identity)
    return answer(None)


async def metadata_beat(request: HttpRequest, identity: Identity) -> HttpResponse:
    """`POST /api/workers/heartbeat`: a beat of workers that describe themselves."""
    body = read_json(request, MetadataBeat)
    if body.worker_id != identity.subject:
        # Whose beat it is comes from the token; a body that disagrees is not obeyed.
        raise PermissionDenied(
            "worker_id is not the caller's", code=ErrorCode.PROTOCOL_IDENTITY_MISMATCH
        )
    metadata = msgspec.json.encode(body.metadata).decode()
    if len(metadata.encode()) > MAX_METADATA_BYTES:
        raise TooLarge(f"the metadata is larger than {MAX_METADATA_BYTES} bytes")
    policy = settings.MITOSIS
    await record_beat(identity, ttl_s=policy.worker_stale_s, metadata=metadata)
    return answer(
        {
            "success": True,
            "message": "Heartbeat recorded",
            "next_heartbeat_in": int(policy.heartbeat_s),
        }
    )


async def _stop_orders(request: HttpRequest, identity: Identity) -> dict[str, list[int]]:
    if not request.body:
        # Without an inventory only what the database knows: never requeue by silence.
        held = await _held(identity)
        return {"cancel": [row[0] for row in held if row[1]], "revoked": []}
    said = read_json(request, BeatBody)
    found = await reconcile(runner_id=identity.id, attempt_ids=said.held)
    return {"cancel": found.cancelled, "revoked": found.revoked}


async def _adopt_back(identity: Identity) -> None:
    """Give an existing worker back what it was thought dead with: it still runs it.

    It cannot say so itself. If it does not, because the answer to its fetch was lost, its next
    fetch gets that very attempt.
    """
    rows = await get_pool().fetch(_HELD_OR_LOST, {"runner_id": identity.id})
    if rows:
        await reconcile(runner_id=identity.id, attempt_ids=[row[0] for row in rows])


async def _remove_if_overrun(identity: Identity) -> None:
    """This beat is still answered as any other; the worker's next request is a 401."""
    if any(is_overrun for _, _, is_overrun in await _held(identity)):
        await in_thread(_remove_overrun, identity.id)


def _remove_overrun(runner_id: int) -> None:
    runner = Runner.objects.get(pk=runner_id)
    back = take_back("its worker let it run past its timeout", charge=True)
    remove_worker(actor=SYSTEM, runner=runner, take_back=back)


async def _held(identity: Identity) -> list[tuple[int, bool, bool]]:
    parameters = {"runner_id": identity.id, "overrun_s": OVERRUN_S}
    rows = await get_pool().fetch(_HELD, parameters)
    return [(attempt_id, bool(told), bool(late)) for attempt_id, told, late in rows]
