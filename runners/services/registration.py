"""Birth and end of a runner: the row with its lease, tokens, rotation and revocation.

Called by the registration services of managers and workers, and by the console.
"""

from collections.abc import Collection
from datetime import timedelta
from functools import partial

from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.bearer import issue
from accounts.models import User
from accounts.services.audit import record
from core.pg import load_sql
from mitosis_protocol.enums import ConnState, RunnerKind, TokenKind
from runners.models import Runner, RunnerLease
from runners.standing import RUNNER_KINDS, forget_standing

_INSERT_LEASE = load_sql("runners", "insert_lease")
_TOKEN_KINDS = {runner_kind: token_kind for token_kind, runner_kind in RUNNER_KINDS.items()}


def create_runner(
    *,
    actor: Actor,
    owner: User,
    kind: RunnerKind,
    tags: Collection[str],
    labels: Collection[str],
    lease: timedelta,
) -> Runner:
    """A new runner of `owner` with a lease; group roles are asked for separately.

    Part of the caller's transaction, so that a failed registration leaves nothing behind.
    """
    with transaction.atomic():
        runner = Runner.objects.create(
            owner=owner, kind=kind, tags=sorted(set(tags)), labels=sorted(set(labels))
        )
        with connection.cursor() as cursor:
            parameters = {"runner_id": runner.pk, "ttl_s": lease.total_seconds()}
            cursor.execute(_INSERT_LEASE, parameters)
        detail = {"kind": kind.value}
        record(actor=actor, action="runner.create", target=str(runner.uuid), detail=detail)
    return runner


def issue_runner_token(runner: Runner, *, lifetime_s: float) -> str:
    """A compact token for the runner's present generation; wrap it for existing workers."""
    return issue(
        kind=token_kind_of(runner),
        subject=str(runner.uuid),
        generation=runner.token_generation,
        lifetime_s=lifetime_s,
    )


def token_kind_of(runner: Runner) -> TokenKind:
    return _TOKEN_KINDS[runner.kind]


def rotate_token_generation(*, actor: Actor, runner: Runner) -> Runner:
    """End every token issued so far; the runner itself lives on."""
    with transaction.atomic():
        rows = Runner.objects.filter(pk=runner.pk)
        rows.update(token_generation=F("token_generation") + 1, updated_at=Now())
        record(actor=actor, action="runner.rotate", target=str(runner.uuid))
        # The caller's transaction may be the one that counts: what is forgotten before it commits
        # would be remembered again with the old generation.
        transaction.on_commit(partial(forget_standing, runner))
        return rows.get()


def revoke_runner(*, actor: Actor, runner: Runner) -> bool:
    """End the runner for good: its tokens, and by the epoch every session that is still open.

    False if it was revoked before. The lease ends too, so the reaper reclaims what it holds.
    """
    with transaction.atomic():
        changed = Runner.objects.filter(pk=runner.pk, revoked_at__isnull=True).update(
            revoked_at=Now(),
            token_generation=F("token_generation") + 1,
            session_epoch=F("session_epoch") + 1,
            conn_state=ConnState.LOST,
            updated_at=Now(),
        )
        if changed:
            # Heartbeats look at the lease row alone: its epoch moves too, and it ends now.
            leases = RunnerLease.objects.filter(runner_id=runner.pk)
            leases.update(session_epoch=F("session_epoch") + 1, expires_at=Now())
            record(actor=actor, action="runner.revoke", target=str(runner.uuid))
        transaction.on_commit(partial(forget_standing, runner))
    return bool(changed)
