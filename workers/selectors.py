"""Reads of workers: one that the caller may reach, and those that serve a group.

A worker out of reach is absent; which role is needed comes from the caller (workers.policy).
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db.models import QuerySet

from accounts.models import Group, User
from core.errors import NotFound
from mitosis_protocol.enums import ConsentState, DesiredState, Role, RunnerKind, WorkerState
from runners.models import GroupRunner, Runner
from runners.selectors import access_runner, find_runner
from workers.models import Worker, WorkerStatus

# Whoever takes tasks without a manager; managers have pages and routes of their own.
WORKER_KINDS: Final = (RunnerKind.INDEPENDENT, RunnerKind.DIRECT)


@dataclass(frozen=True, slots=True)
class WorkerFilter:
    """All conditions hold together; None asks for nothing."""

    roles: Collection[Role] | None = None
    tags: Collection[str] | None = None
    labels: Collection[str] | None = None
    creator_username: str | None = None
    consent: ConsentState = ConsentState.ACCEPTED


def access_worker(actor: User, worker_uuid: uuid.UUID, role: Role) -> Runner:
    """The worker, if `actor` reaches it with `role`; NotFound if not at all."""
    kind = _kind_of(worker_uuid)
    try:
        runner = access_runner(actor, worker_uuid, role, kind=kind).runner
    except NotFound as error:
        # The same words for every kind, or a stranger learns which one hides behind a uuid.
        raise _absent(worker_uuid) from error
    return _rows().get(pk=runner.pk)


def get_applicant(group: Group, worker_uuid: uuid.UUID) -> Runner:
    """A worker that asked to serve the group; any other one is absent for the group."""
    rows = _rows().filter(uuid=worker_uuid, group_roles__group=group, revoked_at__isnull=True)
    runner = rows.first()
    if runner is None:
        raise _absent(worker_uuid)
    return runner


def get_worker(worker_uuid: uuid.UUID) -> Runner:
    """The worker, whoever asks: for admin routes, never for tenants."""
    runner = find_runner(worker_uuid, kind=_kind_of(worker_uuid))
    if runner is None:
        raise _absent(worker_uuid)
    return runner


def list_group_workers(group: Group, wanted: WorkerFilter) -> QuerySet[Runner]:
    """Workers that serve the group, oldest first."""
    roles = [role for role in Role if wanted.roles is None or role in wanted.roles]
    rows = _rows().filter(
        group_roles__group=group,
        group_roles__role__in=roles,
        group_roles__consent=wanted.consent,
        revoked_at__isnull=True,
    )
    if wanted.tags is not None:
        rows = rows.filter(tags__contains=sorted(wanted.tags))
    if wanted.labels is not None:
        rows = rows.filter(labels__contains=sorted(wanted.labels))
    if wanted.creator_username is not None:
        rows = rows.filter(owner__username=wanted.creator_username)
    return rows.order_by("pk")


def list_active_workers(group: Group) -> QuerySet[WorkerStatus]:
    """Workers that serve the group and whose last beat still counts, oldest first."""
    accepted = GroupRunner.objects.filter(group=group, consent=ConsentState.ACCEPTED)
    rows = WorkerStatus.objects.filter(
        status=WorkerStatus.ACTIVE, runner_id__in=accepted.values("runner_id")
    )
    return rows.order_by("runner_id")


def last_heartbeat(runner: Runner, worker: Worker) -> datetime:
    """When its lease was renewed last; registration counts as the first time."""
    return runner.lease.expires_at - timedelta(seconds=worker.lease_ttl_s)


def wire_state(runner: Runner) -> WorkerState:
    """Existing clients know only whether a worker is about to leave."""
    is_leaving = runner.desired_state is DesiredState.SHUTDOWN
    return WorkerState.GRACEFUL_SHUTDOWN if is_leaving else WorkerState.NORMAL


def _absent(worker_uuid: uuid.UUID) -> NotFound:
    return NotFound(f"Worker {worker_uuid} not found")


def _rows() -> QuerySet[Runner]:
    rows = Runner.objects.select_related("owner", "lease")
    return rows.filter(kind__in=WORKER_KINDS)


def _kind_of(worker_uuid: uuid.UUID) -> RunnerKind:
    rows = Runner.objects.filter(uuid=worker_uuid, kind=RunnerKind.DIRECT)
    return RunnerKind.DIRECT if rows.exists() else RunnerKind.INDEPENDENT
