"""Which group may use which manager, and who still has to answer."""

from dataclasses import dataclass, field
from typing import Final, cast

from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber

from accounts.models import Group, Membership, User
from console.viewer import Viewer
from mitosis_protocol.enums import ConsentState, Role, RunnerKind
from runners.models import GroupRunner

PAGE: Final = 25  # groups
MAX_SHOWN: Final = 12  # managers per group; the rest is a click away
MAX_PENDING: Final = 100


@dataclass(frozen=True, slots=True)
class GroupGrants:
    """A group, the viewer's role in it, and managers that serve it."""

    group: Group
    role: Role | None
    grants: list[GroupRunner] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GrantPage:
    groups: list[GroupGrants]
    after: str | None


def read_grants(user: User, viewer: Viewer, *, after: str = "") -> GrantPage:
    """Groups by name."""
    rows = Group.objects.filter(name__gt=after)
    if viewer.member_id is not None:
        rows = rows.filter(memberships__user_id=viewer.member_id)
    found = list(rows.order_by("name")[: PAGE + 1])
    shown = found[:PAGE]
    roles = _roles(user, shown)
    lines = {group.pk: GroupGrants(group, roles.get(group.pk)) for group in shown}
    for grant in _grants(list(lines)):
        lines[grant.group_id].grants.append(grant)
    return GrantPage(list(lines.values()), shown[-1].name if len(found) > PAGE else None)


def read_pending(user: User, viewer: Viewer) -> list[tuple[GroupRunner, bool]]:
    """Managers that ask to serve a group, and whether this user may answer for the group.

    Members see the questions to groups they are Admin of; operators see all and may not answer.
    """
    rows = GroupRunner.objects.filter(
        consent=ConsentState.PENDING,
        runner__kind=RunnerKind.MANAGER,
        runner__revoked_at__isnull=True,
    ).select_related("group", "runner", "runner__owner")
    if viewer.member_id is not None:
        rows = rows.filter(
            group__memberships__user_id=viewer.member_id, group__memberships__role=Role.ADMIN
        )
    found = list(rows.order_by("-pk")[:MAX_PENDING])
    roles = _roles(user, [row.group for row in found])
    return [(row, roles.get(row.group_id) is Role.ADMIN) for row in found]


def _grants(group_ids: list[int]) -> "QuerySet[GroupRunner]":
    numbered = Window(RowNumber(), partition_by=F("group_id"), order_by="-pk")
    return (
        GroupRunner.objects.filter(
            group_id__in=group_ids,
            consent=ConsentState.ACCEPTED,
            runner__kind=RunnerKind.MANAGER,
            runner__revoked_at__isnull=True,
        )
        .annotate(place=numbered)
        .filter(place__lte=MAX_SHOWN + 1)
        .select_related("runner")
    )


def _roles(user: User, groups: list[Group]) -> dict[int, Role]:
    rows = Membership.objects.filter(user_id=user.pk, group_id__in=[group.pk for group in groups])
    return {pk: cast("Role", role) for pk, role in rows.values_list("group_id", "role")}
