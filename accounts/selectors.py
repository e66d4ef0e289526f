"""Reads of users, groups and roles. `access_*` check the caller's role; a foreign object is absent.

Called by the API of every app and by services; nothing here writes.
"""

from dataclasses import dataclass
from typing import cast

from accounts.models import Group, Membership, User
from accounts.permissions import at_least
from core.errors import NotFound, PermissionDenied
from mitosis_protocol.enums import Role
from mitosis_protocol.names import is_valid_name


@dataclass(frozen=True, slots=True)
class GroupAccess:
    """A group and the role that let the caller reach it."""

    group: Group
    role: Role


def find_user(username: str) -> User | None:
    # Also keeps NUL and other surprises of a URL away from the driver.
    return User.objects.filter(username=username).first() if is_valid_name(username) else None


def get_user(username: str) -> User:
    user = find_user(username)
    if user is None:
        raise NotFound(f"User {username} not found")
    return user


def find_group(name: str) -> Group | None:
    return Group.objects.filter(name=name).first() if is_valid_name(name) else None


def get_group(name: str) -> Group:
    """A group by name, whoever asks: for admin routes and for registrations, never for tenants."""
    group = find_group(name)
    if group is None:
        raise NotFound(f"Group {name} not found")
    return group


def find_role(*, user_id: int, group_id: int) -> Role | None:
    rows = Membership.objects.filter(user_id=user_id, group_id=group_id)
    return cast("Role | None", rows.values_list("role", flat=True).first())


def access_group(actor: User, name: str, role: Role) -> GroupAccess:
    """The named group, if `actor` holds `role` or more in it.

    A group the actor does not belong to is reported exactly as one that does not exist.
    """
    membership = _find_membership(actor, name) if is_valid_name(name) else None
    if membership is None:
        raise NotFound(f"Group {name} not found")
    if not at_least(membership.role, role):
        raise PermissionDenied
    return GroupAccess(group=membership.group, role=membership.role)


def _find_membership(actor: User, group_name: str) -> Membership | None:
    rows = Membership.objects.select_related("group", "group__creator")
    return rows.filter(user_id=actor.pk, group__name=group_name).first()


def list_roles_of_user(user_id: int) -> dict[str, Role]:
    """Every group of a user with the user's role in it."""
    rows = Membership.objects.filter(user_id=user_id).order_by("group__name")
    return {name: cast("Role", role) for name, role in rows.values_list("group__name", "role")}


def list_members(group_id: int) -> dict[str, Role]:
    """Every user of a group with the user's role in it."""
    rows = Membership.objects.filter(group_id=group_id).order_by("user__username")
    return {name: cast("Role", role) for name, role in rows.values_list("user__username", "role")}
