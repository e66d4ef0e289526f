"""Health of this process, for supervisors and load balancers.

`/healthz` says that the process serves requests, `/readyz` that its stores answer too, `/health`
is the existing API's word for the first. All three need no login and tell no secrets.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from mitosis_site.object_store import ObjectStore
from mitosis_site.readiness import Check, Dependencies, check_readiness


@require_safe
async def healthz(request: HttpRequest) -> JsonResponse:
    """No I/O at all: restarting us would not bring a dead database back."""
    return JsonResponse({"status": "ok"})


@require_safe
async def readyz(request: HttpRequest) -> JsonResponse:
    """200 when all stores answer, else 503 with the name of each that does not."""
    checks = await _flight.join(_dependencies(), limit_s=settings.MITOSIS.readiness_s)
    ready = all(check.ok for check in checks.values())
    return JsonResponse(
        {
            "status": "ok" if ready else "unavailable",
            "checks": {name: asdict(check) for name, check in checks.items()},
        },
        status=200 if ready else 503,
        headers={"Cache-Control": "no-store"},
    )


class _SingleFlight:
    """Requests that arrive during a check share its result.

    The endpoint is open to everybody and opens three connections: without this a flood of requests
    would become a flood of connections.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[Mapping[str, Check]] | None = None
        self._key: tuple[object, ...] = ()

    async def join(self, needs: Dependencies, *, limit_s: float) -> Mapping[str, Check]:
        key = (asyncio.get_running_loop(), needs, limit_s)
        if self._task is None or self._task.done() or self._key != key:
            self._key = key
            self._task = asyncio.create_task(check_readiness(needs, limit_s=limit_s))
        # Shielded: a caller that hangs up must not cancel the check of the others.
        return await asyncio.shield(self._task)


_flight: Final = _SingleFlight()


def _dependencies() -> Dependencies:
    return Dependencies(
        database_url=settings.DATABASE_URL,
        redis_url=settings.REDIS_URL,
        store=object_store(),
        is_pooled=settings.DATABASE_IS_POOLED,
    )


def object_store() -> ObjectStore:
    """The object store of the settings."""
    return ObjectStore(
        endpoint_url=settings.S3_ENDPOINT_URL,
        region=settings.S3_REGION,
        access_key_id=settings.S3_ACCESS_KEY_ID,
        secret_access_key=settings.S3_SECRET_ACCESS_KEY,
        buckets=(settings.S3_ARTIFACTS_BUCKET, settings.S3_ATTACHMENTS_BUCKET),
    )
