"""Role algebra: pure predicates over Read < Write < Admin.

Used by selectors and services of every app; nothing here touches the database.
"""

from collections.abc import Iterable

from mitosis_protocol.enums import Role
from mitosis_protocol.errors import InvalidValue

DEFAULT_GRANT = Role.WRITE  # a group named without a role at registration


def at_least(role: Role | None, needed: Role) -> bool:
    """Whether `role` (None: no relation at all) includes everything `needed` allows."""
    return role is not None and role.allows(needed)


def strongest(roles: Iterable[Role]) -> Role | None:
    return max(roles, default=None)


def through_group(user_role: Role | None, group_role: Role | None) -> Role | None:
    """What a user may do to a runner by way of one group: the weaker of the two links."""
    if user_role is None or group_role is None:
        return None
    return min(user_role, group_role)


def reach(links: Iterable[tuple[Role | None, Role | None]]) -> Role | None:
    """The best a user can do over all groups; each link is (user in group, group on runner)."""
    roles = (through_group(user_role, group_role) for user_role, group_role in links)
    return strongest(role for role in roles if role is not None)


def parse_role(text: str) -> Role | None:
    """A role as clients spell it: `Write`, `write` or `WRITE`; None for anything else."""
    try:
        return Role.parse(text)
    except InvalidValue:
        return None


def parse_grant(text: str) -> tuple[str, Role] | None:
    """`name` or `name:role` from a registration; None for anything with more colons.

    An unknown or missing role means Write, as existing clients expect.
    """
    name, *rest = text.split(":")
    if len(rest) > 1:
        return None
    role = parse_role(rest[0]) if rest else None
    return name, role or DEFAULT_GRANT
