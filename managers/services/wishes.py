"""What an operator or the system wants of a manager: work, drain, stay in quarantine, leave.

The wish is the runner's desired state; claims require Active, so it acts at once. Engagements end
at the scheduler's next pass, when nothing runs any more, or right then if it is forced.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.services.audit import record
from core.errors import InvalidTransition
from managers.enums import ReleaseReason
from managers.models import NodeManager
from managers.services.engagement import release_all
from managers.services.session_suites import tell_shutdown
from mitosis_protocol.enums import DesiredState, ShutdownOp
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from runners.models import Runner
from runners.services.registration import revoke_runner


def drain_manager(*, actor: Actor, runner: Runner, reason: str = "") -> None:
    """No new tasks; what runs may end. Idempotent; refused for one that is shutting down."""
    sources = (DesiredState.ACTIVE, DesiredState.DRAINING)
    _wish(actor, runner, DesiredState.DRAINING, sources, wish_reason=reason)


def undrain_manager(*, actor: Actor, runner: Runner) -> None:
    """Back to work; only from draining."""
    sources = (DesiredState.ACTIVE, DesiredState.DRAINING)
    _wish(actor, runner, DesiredState.ACTIVE, sources, wish_reason="")


def quarantine_manager(
    *, actor: Actor, runner: Runner, reason: str, probe_after_s: float | None = None
) -> None:
    """No new tasks until somebody releases it, or until a probe is due."""
    sources = (DesiredState.ACTIVE, DesiredState.DRAINING, DesiredState.QUARANTINED)
    wait = None if probe_after_s is None else Now() + timedelta(seconds=probe_after_s)
    _wish(
        actor,
        runner,
        DesiredState.QUARANTINED,
        sources,
        wish_reason=reason,
        probe_after=wait,
        probation_until=None,
    )


def release_manager(*, actor: Actor, runner: Runner) -> None:
    """End a quarantine by hand: the evidence so far is forgotten."""
    sources = (DesiredState.QUARANTINED,)
    _wish(
        actor,
        runner,
        DesiredState.ACTIVE,
        sources,
        wish_reason="",
        probe_after=None,
        probation_until=None,
        quarantine_count=0,
        evidence_since=Now(),
    )


def shut_down_manager(*, actor: Actor, runner: Runner, op: ShutdownOp) -> None:
    """Leave: after what runs (Graceful), or at once (Force). Force may follow Graceful."""
    _wish(
        actor,
        runner,
        DesiredState.SHUTDOWN,
        tuple(DesiredState),
        wish_reason=f"shutdown: {op.value}",
        is_forced=op is ShutdownOp.FORCE,
    )
    tell_shutdown(runner.uuid, graceful=op is ShutdownOp.GRACEFUL)


def revoke_manager(*, actor: Actor, runner: Runner) -> bool:
    """End its registration for good: tokens, sessions, engagements. False if it was before.

    The lease ends too, so the reaper takes back what it holds.
    """
    with transaction.atomic():
        revoked = revoke_runner(actor=actor, runner=runner)
        release_all([runner.pk], ReleaseReason.REVOKED)
        NodeManager.objects.filter(pk=runner.pk).update(refresh_hash="", refresh_previous_hash="")
    return revoked


def _wish(
    actor: Actor,
    runner: Runner,
    wanted: DesiredState,
    sources: Collection[DesiredState],
    **columns: Any,
) -> None:
    reason = str(columns.get("wish_reason", ""))[:MAX_ERROR_MESSAGE_CHARS]
    with transaction.atomic():
        rows = Runner.objects.filter(pk=runner.pk, revoked_at__isnull=True)
        changed = rows.filter(desired_state__in=list(sources)).update(
            desired_state=wanted, updated_at=Now()
        )
        if not changed:
            present = rows.values_list("desired_state", flat=True).first()
            raise InvalidTransition(f"A manager that is {present} cannot become {wanted}")
        NodeManager.objects.filter(pk=runner.pk).update(
            **{**columns, "wish_reason": reason, "wish_at": Now()}
        )
        detail = {"wish": wanted.value, "reason": reason}
        record(actor=actor, action="manager.wish", target=str(runner.uuid), detail=detail)
