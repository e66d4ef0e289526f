"""Workers leave over HTTP: by themselves, at the end of a graceful shutdown, or for good reason."""

from collections.abc import Callable

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from accounts.actors import Actor, identity_actor
from accounts.identity import Identity
from core.errors import DatabaseUnavailable
from mitosis_protocol.enums import DesiredState
from runners.models import Runner
from tasks.services.reclaim import Swept, reclaim_from_runners
from workers.api.endpoint import answer, in_thread, persist, takes_direct
from workers.services.departure import end_leaving_async, remove_worker

log = structlog.get_logger(__name__)


@takes_direct
async def unregister(request: HttpRequest, identity: Identity) -> HttpResponse:
    """`DELETE /workers`: the worker goes and its task returns to the queue."""

    async def unregistered() -> HttpResponse:
        await leave(request, identity)
        return answer(None)

    return await persist(unregistered)


async def leave(request: HttpRequest, identity: Identity, *, only_if_asked: bool = False) -> bool:
    """End the caller; with `only_if_asked` only one that is in graceful shutdown (else False)."""
    actor = identity_actor(identity, request)
    return await in_thread(_leave, actor, identity.id, only_if_asked)


async def end_leaving(identity: Identity) -> None:
    """After a commit: the end of a graceful shutdown. The commit stands whatever happens here."""
    try:
        await end_leaving_async(identity.id)
    except DatabaseUnavailable:
        log.warning("worker.not_ended", worker_uuid=identity.subject)


def take_back(reason: str, *, charge: bool = False) -> Callable[[int], Swept]:
    """Return what a removed worker holds; `charge` when the task is to blame for the removal."""

    def reclaim(runner_id: int) -> Swept:
        batch = settings.MITOSIS.sweep_batch
        return reclaim_from_runners([runner_id], charge=charge, max_tasks=batch, reason=reason)

    return reclaim


def _leave(actor: Actor, runner_id: int, only_if_asked: bool) -> bool:
    runner = Runner.objects.get(pk=runner_id)
    if only_if_asked and runner.desired_state is not DesiredState.SHUTDOWN:
        return False
    remove_worker(actor=actor, runner=runner, take_back=take_back("its worker left"))
    return True
