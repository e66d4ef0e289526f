"""How a worker becomes known: runner, lease, groups that were asked, and a token.

Called by workers.api. Unknown groups are dropped without a word, as existing workers expect; a
known one counts once its side consented, at once where the registrant is Admin. A direct worker
has one tenant: the group it asked for, else its owner's own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction

from accounts.actors import Actor
from accounts.models import Group, User
from accounts.permissions import parse_grant
from accounts.tokens import wrap
from core.errors import InvalidInput
from mitosis_protocol.enums import ConsentState, Role, RunnerKind
from runners.models import Runner
from runners.services.groups import find_known_groups, put_group_roles
from runners.services.registration import create_runner, issue_runner_token
from workers.models import Worker
from workers.services.attributes import check_own_tags


@dataclass(frozen=True, slots=True)
class NewWorker:
    """What a registration asks for. `groups` holds `name` or `name:role`."""

    kind: RunnerKind
    tags: Collection[str]
    labels: Collection[str]
    groups: Collection[str]
    lease_ttl_s: float
    token_lifetime_s: float
    certificate: str | None = None  # of a direct worker, which has to show it from then on


@dataclass(frozen=True, slots=True)
class RegisteredWorker:
    """The new worker, its token as existing workers read it, and each group's answer."""

    runner: Runner
    token: str
    consents: dict[str, ConsentState]


def register_worker(*, actor: Actor, owner: User, new: NewWorker) -> RegisteredWorker:
    """A worker of `owner`, who is Admin of it through the group of the same name."""
    check_own_tags(new.tags)
    roles = _asked_roles(owner, new.groups)
    tenant = _tenant(owner, new.groups, roles) if new.kind is RunnerKind.DIRECT else None
    with transaction.atomic():
        runner = create_runner(
            actor=actor,
            owner=owner,
            kind=new.kind,
            tags=new.tags,
            labels=new.labels,
            lease=timedelta(seconds=new.lease_ttl_s),
        )
        Worker.objects.create(
            runner=runner,
            lease_ttl_s=new.lease_ttl_s,
            tenant=tenant,
            certificate=new.certificate,
        )
        consents = put_group_roles(actor=actor, asked_by=owner, runner=runner, roles=roles)
    token = wrap(issue_runner_token(runner, lifetime_s=new.token_lifetime_s))
    return RegisteredWorker(runner=runner, token=token, consents=consents)


def _asked_roles(owner: User, groups: Collection[str]) -> dict[str, Role]:
    """By name; of two roles asked for one group the stronger counts, and one's own is Admin."""
    asked: dict[str, Role] = {}
    for text in groups:
        grant = parse_grant(text)
        if grant is not None:
            name, role = grant
            asked[name] = max(role, asked.get(name, role))
    known = find_known_groups(asked)
    roles = {name: role for name, role in asked.items() if name in known}
    roles[owner.username] = Role.ADMIN
    return roles


def _tenant(owner: User, asked: Collection[str], roles: Mapping[str, Role]) -> Group:
    """Dropping an unknown name, as for existing workers, would bind it to the wrong group."""
    if len(asked) > 1:
        raise InvalidInput("groups: a direct worker serves one group")
    grants = [parse_grant(text) for text in asked]
    names = [grant[0] for grant in grants if grant is not None and grant[0] in roles]
    if asked and not names:
        raise InvalidInput("groups: there is no such group")
    return Group.objects.get(name=names[0] if names else owner.username)
