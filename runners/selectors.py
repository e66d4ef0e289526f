"""Reads of runners and of what groups and users may do to them.

A user reaches a runner through groups: the user's role in the group and the group's role on the
runner, whichever is weaker, over accepted roles only. A runner out of reach is absent.
"""

import uuid
from dataclasses import dataclass
from typing import cast

from accounts.models import User
from accounts.permissions import at_least, reach
from core.errors import NotFound, PermissionDenied
from mitosis_protocol.enums import ConsentState, Role, RunnerKind
from runners.models import GroupRunner, Runner


@dataclass(frozen=True, slots=True)
class RunnerAccess:
    """A runner and the strongest role that let the caller reach it."""

    runner: Runner
    role: Role


def find_runner(runner_uuid: uuid.UUID, *, kind: RunnerKind) -> Runner | None:
    """A runner that was not revoked, whoever asks."""
    rows = Runner.objects.select_related("owner")
    return rows.filter(uuid=runner_uuid, kind=kind, revoked_at__isnull=True).first()


def access_runner(
    actor: User, runner_uuid: uuid.UUID, role: Role, *, kind: RunnerKind
) -> RunnerAccess:
    """The runner, if `actor` reaches it with `role` or more; NotFound if not at all."""
    runner = find_runner(runner_uuid, kind=kind)
    reached = None if runner is None else find_reach(user_id=actor.pk, runner_id=runner.pk)
    if runner is None or reached is None:
        raise NotFound(f"{kind.value} {runner_uuid} not found")
    if not at_least(reached, role):
        raise PermissionDenied
    return RunnerAccess(runner=runner, role=reached)


def find_reach(*, user_id: int, runner_id: int) -> Role | None:
    """The strongest role of a user on a runner over all the groups between them."""
    links = GroupRunner.objects.filter(
        runner_id=runner_id, consent=ConsentState.ACCEPTED, group__memberships__user_id=user_id
    ).values_list("group__memberships__role", "role")
    return reach((cast("Role", member), cast("Role", group)) for member, group in links)


def list_group_roles(
    runner_id: int, *, consent: ConsentState = ConsentState.ACCEPTED
) -> dict[str, Role]:
    """Every group with a role on the runner, by the group's answer."""
    rows = GroupRunner.objects.filter(runner_id=runner_id, consent=consent).order_by("group__name")
    return {name: cast("Role", role) for name, role in rows.values_list("group__name", "role")}


def count_workers(group_id: int) -> int:
    """Independent and direct workers that serve a group. Counted, so it cannot drift."""
    return GroupRunner.objects.filter(
        group_id=group_id,
        consent=ConsentState.ACCEPTED,
        runner__kind__in=[RunnerKind.INDEPENDENT, RunnerKind.DIRECT],
        runner__revoked_at__isnull=True,
    ).count()
