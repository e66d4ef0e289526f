"""Which groups a runner serves, and both sides' consent to it.

The runner's owner asks; a role counts once the group's side accepted it, at once when the one who
asks is Admin there. Otherwise a rogue runner could ask its way into a group and receive its code.
"""

from collections.abc import Collection, Mapping
from typing import cast

from django.db import transaction
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.models import Group, Membership, User
from accounts.services.audit import record
from core.errors import InvalidInput, NotFound
from mitosis_protocol.enums import ConsentState, Role
from mitosis_protocol.names import is_valid_name
from runners.models import GroupRunner, Runner


def put_group_roles(
    *, actor: Actor, asked_by: User, runner: Runner, roles: Mapping[str, Role]
) -> dict[str, ConsentState]:
    """Give each group the role on the runner; answers whether each has to be accepted yet.

    A group that accepted before stays accepted. Unknown groups raise InvalidInput.
    """
    groups = _known_groups(roles)
    administered = _administered_by(asked_by, groups.values())
    with transaction.atomic():
        answers = {
            name: _put_role(
                runner,
                group_id,
                roles[name],
                decided_by=asked_by if group_id in administered else None,
            )
            for name, group_id in sorted(groups.items())
        }
        detail = {name: roles[name].value for name in answers}
        record(actor=actor, action="runner.groups.put", target=str(runner.uuid), detail=detail)
    return answers


def remove_group_roles(*, actor: Actor, runner: Runner, group_names: Collection[str]) -> None:
    """Take the groups' roles away; one that had none is no error. Unknown groups: InvalidInput."""
    groups = _known_groups(group_names)
    with transaction.atomic():
        GroupRunner.objects.filter(runner=runner, group_id__in=groups.values()).delete()
        detail = {"groups": sorted(groups)}
        record(actor=actor, action="runner.groups.remove", target=str(runner.uuid), detail=detail)


def decide_consent(
    *, actor: Actor, decided_by: User, runner: Runner, group: Group, accept: bool
) -> ConsentState:
    """The group's answer, given by one of its Admins (the caller checked that). Idempotent."""
    answer = ConsentState.ACCEPTED if accept else ConsentState.REFUSED
    with transaction.atomic():
        changed = GroupRunner.objects.filter(runner=runner, group=group).update(
            consent=answer, decided_by=decided_by, decided_at=Now(), updated_at=Now()
        )
        if not changed:
            raise NotFound("The runner has not asked to serve this group")
        detail = {"group": group.name, "answer": answer.value}
        record(actor=actor, action="runner.consent", target=str(runner.uuid), detail=detail)
    return answer


def find_known_groups(names: Collection[str]) -> dict[str, int]:
    """Ids of those names that are groups; a registration of existing workers drops the rest."""
    valid = {name for name in names if is_valid_name(name)}
    return dict(Group.objects.filter(name__in=valid).values_list("name", "pk"))


def _known_groups(names: Collection[str]) -> dict[str, int]:
    if not names:
        raise InvalidInput("name at least one group")
    known = find_known_groups(names)
    unknown = sorted(set(names) - known.keys())
    if unknown:
        shown = ", ".join(name[:64] for name in unknown[:10])
        raise InvalidInput(f"unknown groups: {shown}")
    return known


def _administered_by(user: User, group_ids: Collection[int]) -> set[int]:
    rows = Membership.objects.filter(user=user, group_id__in=group_ids, role=Role.ADMIN)
    return set(rows.values_list("group_id", flat=True))


def _put_role(
    runner: Runner, group_id: int, role: Role, *, decided_by: User | None
) -> ConsentState:
    row, _ = GroupRunner.objects.select_for_update().get_or_create(
        runner=runner, group_id=group_id, defaults={"role": role}
    )
    row.role = role
    if decided_by is not None and row.consent != ConsentState.ACCEPTED:
        row.consent = ConsentState.ACCEPTED
        row.decided_by = decided_by
        row.decided_at = Now()
    elif row.consent == ConsentState.REFUSED:
        row.consent = ConsentState.PENDING  # asked again: the group answers again
    row.save(update_fields=["role", "consent", "decided_by", "decided_at", "updated_at"])
    return cast("ConsentState", row.consent)
