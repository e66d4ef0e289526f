"""Reads of managers: one the caller may reach, lists with filters, what each is engaged with.

A manager out of reach is absent. Roles come from groups, as runners.selectors explains.
"""

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db.models import Exists, OuterRef, QuerySet

from accounts.models import Group, User
from core.errors import NotFound
from managers.models import NodeManager, SuiteAssignment
from mitosis_protocol.enums import ConsentState, ManagerState, Role, RunnerKind
from runners.models import GroupRunner, Runner
from runners.selectors import access_runner, find_runner


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerFilter:
    """All conditions hold together; None asks for nothing."""

    group_name: str | None = None
    tags: Collection[str] | None = None
    labels: Collection[str] | None = None
    states: Collection[ManagerState] | None = None
    creator_username: str | None = None
    consent: ConsentState = ConsentState.ACCEPTED


def access_manager(actor: User, manager_uuid: uuid.UUID, role: Role) -> NodeManager:
    """The manager, if `actor` reaches it with `role` or more; NotFound if not at all."""
    try:
        runner = access_runner(actor, manager_uuid, role, kind=RunnerKind.MANAGER).runner
    except NotFound as error:
        raise _absent(manager_uuid) from error
    return _rows().get(pk=runner.pk)


def get_manager(manager_uuid: uuid.UUID) -> Runner:
    """The manager, whoever asks: for managers themselves, never for tenants."""
    runner = find_runner(manager_uuid, kind=RunnerKind.MANAGER)
    if runner is None:
        raise _absent(manager_uuid)
    return runner


def get_applicant(group: Group, manager_uuid: uuid.UUID) -> Runner:
    """A manager that asked to serve the group; any other one is absent for the group."""
    runner = get_manager(manager_uuid)
    if not GroupRunner.objects.filter(runner=runner, group=group).exists():
        raise _absent(manager_uuid)
    return runner


def list_managers(actor: User, wanted: ManagerFilter) -> QuerySet[NodeManager]:
    """Managers the caller reaches through a group, newest first; the caller pages."""
    # Who only asks to serve a group is the business of those who answer.
    is_asking = wanted.consent is not ConsentState.ACCEPTED
    links = GroupRunner.objects.filter(
        # One call: a second filter over memberships would look at anybody's.
        runner_id=OuterRef("pk"),
        consent=wanted.consent,
        group__memberships__user_id=actor.pk,
        group__memberships__role__in=[Role.ADMIN] if is_asking else list(Role),
    )
    if wanted.group_name is not None:
        links = links.filter(group__name=wanted.group_name)
    rows = _rows().filter(Exists(links), runner__revoked_at__isnull=True)
    if wanted.tags is not None:
        rows = rows.filter(runner__tags__contains=sorted(wanted.tags))
    if wanted.labels is not None:
        rows = rows.filter(runner__labels__contains=sorted(wanted.labels))
    if wanted.states is not None:
        rows = rows.filter(state__in=list(wanted.states))
    if wanted.creator_username is not None:
        rows = rows.filter(runner__owner__username=wanted.creator_username)
    return rows.order_by("-pk")


def engagements_of(manager_ids: Sequence[int]) -> dict[int, SuiteAssignment]:
    """The live engagement of each manager that has one; one query."""
    rows = SuiteAssignment.objects.select_related("suite").filter(
        manager_id__in=manager_ids, released_at__isnull=True
    )
    return {row.manager_id: row for row in rows}


def _rows() -> QuerySet[NodeManager]:
    return NodeManager.objects.select_related("runner", "runner__owner", "runner__lease")


def _absent(manager_uuid: uuid.UUID) -> NotFound:
    return NotFound(f"Manager {manager_uuid} not found")
