"""Groups and who is in them: creation within the creator's quota, roles given and taken.

Called by the API and the console. Callers pass a group they reached through a selector.
"""

from collections.abc import Collection, Mapping

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.models import Group, Membership, User
from accounts.selectors import get_group
from accounts.services.audit import record
from accounts.services.names import claiming_name
from core.errors import InvalidInput, QuotaExceeded
from mitosis_protocol.enums import GroupState, Role
from mitosis_protocol.names import is_valid_name


def create_group(*, actor: Actor, creator: User, name: str) -> Group:
    """Make a group with `creator` as Admin, if the creator may have one more."""
    if not is_valid_name(name):
        raise InvalidInput("Invalid group name")
    with claiming_name(name):
        _charge_group_quota(creator)
        group = Group.objects.create(name=name, creator=creator)
        Membership.objects.create(user=creator, group=group, role=Role.ADMIN)
        record(actor=actor, action="group.create", target=name)
    return group


def put_members(*, actor: Actor, group: Group, roles: Mapping[str, Role]) -> None:
    """Give each named user the role, whether or not the user was a member; all or none."""
    users = _known_users(roles)
    memberships = [
        Membership(user_id=users[name], group=group, role=role) for name, role in roles.items()
    ]
    with transaction.atomic():
        Membership.objects.bulk_create(
            memberships,
            update_conflicts=True,
            unique_fields=["user", "group"],
            update_fields=["role", "updated_at"],
        )
        given = {name: role.value for name, role in sorted(roles.items())}
        record(actor=actor, action="group.members.put", target=group.name, detail={"roles": given})


def remove_members(*, actor: Actor, group: Group, usernames: Collection[str]) -> None:
    """Take the named users out; one who was no member is no error. All or none."""
    users = _known_users(usernames)
    with transaction.atomic():
        Membership.objects.filter(group=group, user_id__in=users.values()).delete()
        removed = {"users": sorted(users)}
        record(actor=actor, action="group.members.remove", target=group.name, detail=removed)


def set_group_state(*, actor: Actor, group: Group, state: GroupState) -> None:
    """Lock, delete or reactivate; only an Active group takes uploads and tasks."""
    with transaction.atomic():
        Group.objects.filter(pk=group.pk).update(state=state, updated_at=Now())
        detail = {"state": state.value}
        record(actor=actor, action="group.state", target=group.name, detail=detail)


def set_priority_ceiling(*, actor: Actor, group_name: str, ceiling: int | None) -> None:
    """The highest priority the group may ask for from now on; None lifts the ceiling."""
    group = get_group(group_name)
    with transaction.atomic():
        Group.objects.filter(pk=group.pk).update(priority_ceiling=ceiling, updated_at=Now())
        detail = {"ceiling": ceiling}
        record(actor=actor, action="group.priority_ceiling", target=group.name, detail=detail)


def set_drain_limits(
    *, actor: Actor, group: Group, mem_pct: int | None, disk_pct: int | None
) -> None:
    """How full its direct workers may be, from their next session on; None is the policy's."""
    limits = {"drain_mem_pct": mem_pct, "drain_disk_pct": disk_pct}
    with transaction.atomic():
        Group.objects.filter(pk=group.pk).update(**limits, updated_at=Now())
        record(actor=actor, action="group.drain_limits", target=group.name, detail=limits)


def _charge_group_quota(creator: User) -> None:
    # One guarded statement: two creations at the same moment cannot both take the last place.
    charged = User.objects.filter(pk=creator.pk, group_count__lt=F("group_quota")).update(
        group_count=F("group_count") + 1, updated_at=Now()
    )
    if not charged:
        raise QuotaExceeded


def _known_users(usernames: Collection[str]) -> dict[str, int]:
    if not usernames:
        raise InvalidInput("name at least one user")
    valid = {name for name in usernames if is_valid_name(name)}
    known = dict(User.objects.filter(username__in=valid).values_list("username", "pk"))
    unknown = sorted(set(usernames) - known.keys())
    if unknown:
        shown = ", ".join(name[:64] for name in unknown[:10])
        raise InvalidInput(f"unknown users: {shown}")
    return known
