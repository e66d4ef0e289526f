"""Which tokens of runners count right now, remembered for some seconds.

The memory's age (the policy's revocation_cache_s) bounds how long a revoked token still works.
Asked by runners.authentication; told to forget by the services that revoke and rotate.
"""

import uuid
from typing import Final

from django.conf import settings

from accounts.identity import Standing, StandingCache
from core.pg import get_pool, load_sql
from mitosis_protocol.enums import RunnerKind, TokenKind
from runners.models import Runner

RUNNER_KINDS: Final = {
    TokenKind.WORKER: RunnerKind.INDEPENDENT,
    TokenKind.MANAGER: RunnerKind.MANAGER,
    TokenKind.DIRECT: RunnerKind.DIRECT,
}
_STANDING: Final = load_sql("runners", "runner_standing")
_cache: Final = StandingCache()


async def runner_standing(kind: TokenKind, subject: str) -> Standing | None:
    found = _cache.find((kind, subject), max_age_s=settings.MITOSIS.revocation_cache_s)
    runner_uuid = _uuid(subject)
    if found is not None or runner_uuid is None:
        return found
    asked_at = _cache.clock()
    parameters = {"uuid": runner_uuid, "kind": RUNNER_KINDS[kind].code}
    rows = await get_pool().fetch(_STANDING, parameters)
    return _remember(kind, subject, asked_at, rows[0] if rows else None)


def runner_standing_in_thread(kind: TokenKind, subject: str) -> Standing | None:
    found = _cache.find((kind, subject), max_age_s=settings.MITOSIS.revocation_cache_s)
    runner_uuid = _uuid(subject)
    if found is not None or runner_uuid is None:
        return found
    asked_at = _cache.clock()
    rows = Runner.objects.filter(uuid=runner_uuid, kind=RUNNER_KINDS[kind], revoked_at__isnull=True)
    return _remember(kind, subject, asked_at, rows.values_list("pk", "token_generation").first())


def forget_standing(runner: Runner) -> None:
    """Drop what this process remembers; call after a revocation or a rotation has committed."""
    for kind, runner_kind in RUNNER_KINDS.items():
        if runner_kind == runner.kind:
            _cache.forget((kind, str(runner.uuid)))


def _remember(
    kind: TokenKind, subject: str, asked_at: float, row: tuple[int, int] | None
) -> Standing | None:
    # Absence is not remembered: a runner registered a moment ago must get in at once.
    if row is None:
        _cache.forget((kind, subject))
        return None
    standing = Standing(id=row[0], generation=row[1], is_active=True)
    _cache.store((kind, subject), standing, asked_at=asked_at)
    return standing


def _uuid(subject: str) -> uuid.UUID | None:
    try:
        parsed = uuid.UUID(subject)
    except ValueError:
        return None
    # Python also reads braces, `urn:` and missing hyphens; one runner has one spelling.
    return parsed if str(parsed) == subject else None
