"""How a manager becomes known: runner, lease, groups that were asked, and its two tokens.

Called by the manager API with a user's token. A group counts once its side consented, at once
where the registrant is Admin; matching follows in the same transaction.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction

from accounts.actors import Actor
from accounts.models import Membership, User
from accounts.permissions import parse_grant
from core.errors import InvalidInput
from managers.models import NodeManager
from managers.services.eligibility import match_managers
from managers.services.tokens import ManagerTokens, issue_first_tokens
from mitosis_protocol.enums import ConsentState, Role, RunnerKind
from mitosis_protocol.names import is_valid_name
from runners.models import Runner
from runners.services.groups import put_group_roles
from runners.services.registration import create_runner


@dataclass(frozen=True, slots=True)
class NewManager:
    """What a registration asks for. `groups` holds `name` or `name:role`."""

    tags: Collection[str]
    labels: Collection[str]
    groups: Collection[str]
    lease_ttl_s: float
    access_s: float
    lifetime_s: float  # of the whole registration, refreshes included


@dataclass(frozen=True, slots=True)
class RegisteredManager:
    """The new manager, its tokens, and each group's answer."""

    runner: Runner
    tokens: ManagerTokens
    consents: dict[str, ConsentState]


def register_manager(*, actor: Actor, owner: User, new: NewManager) -> RegisteredManager:
    """A manager of `owner`, who is Admin of it through the group of the same name.

    Raises InvalidInput for a group the owner does not belong to, whether or not it exists.
    """
    roles = asked_roles(owner, new.groups)
    with transaction.atomic():
        runner = create_runner(
            actor=actor,
            owner=owner,
            kind=RunnerKind.MANAGER,
            tags=new.tags,
            labels=new.labels,
            lease=timedelta(seconds=new.lease_ttl_s),
        )
        NodeManager.objects.create(runner=runner)
        consents = put_group_roles(actor=actor, asked_by=owner, runner=runner, roles=roles)
        tokens = issue_first_tokens(runner, access_s=new.access_s, lifetime_s=new.lifetime_s)
        match_managers([runner.pk])
    return RegisteredManager(runner=runner, tokens=tokens, consents=consents)


def asked_roles(owner: User, groups: Collection[str]) -> dict[str, Role]:
    """By name; of two roles asked for one group the stronger counts, and one's own is Admin."""
    asked: dict[str, Role] = {}
    for text in groups:
        grant = parse_grant(text)
        if grant is None:
            raise InvalidInput(f"groups: {text[:64]!r} is not `name` or `name:role`")
        name, role = grant
        asked[name] = max(role, asked.get(name, role))
    check_membership(owner, asked)
    asked[owner.username] = Role.ADMIN
    return asked


def check_membership(user: User, names: Collection[str]) -> None:
    """Only a member may offer a host to a group; a stranger cannot learn which groups exist."""
    valid = [name for name in names if is_valid_name(name)]
    rows = Membership.objects.filter(user=user, group__name__in=valid)
    strange = sorted(set(names) - set(rows.values_list("group__name", flat=True)))
    if strange:
        shown = ", ".join(name[:64] for name in strange[:10])
        raise InvalidInput(f"groups: you belong to no group called {shown}")
