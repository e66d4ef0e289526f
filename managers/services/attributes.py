"""Tags, labels and groups of a manager. What decides matching is matched again at once."""

from collections.abc import Collection, Mapping

from django.db import transaction
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.models import Group, User
from accounts.services.audit import record
from core.errors import InvalidInput
from managers.services.eligibility import match_managers
from managers.services.registration import check_membership
from mitosis_protocol.enums import ConsentState, Role
from runners.models import Runner
from runners.services import groups


def replace_tags(*, actor: Actor, runner: Runner, tags: Collection[str]) -> None:
    """What the host has; suites and tasks must ask for nothing else."""
    with transaction.atomic():
        _replace(actor, runner, "tags", tags)
        match_managers([runner.pk])


def replace_labels(*, actor: Actor, runner: Runner, labels: Collection[str]) -> None:
    """Notes for people and filters; they never decide who gets a task."""
    _replace(actor, runner, "labels", labels)


def put_groups(
    *, actor: Actor, asked_by: User, runner: Runner, roles: Mapping[str, Role]
) -> dict[str, ConsentState]:
    """Offer the manager to groups the caller belongs to; counts once they accept."""
    if not roles:
        raise InvalidInput("relations: name at least one group")
    check_membership(asked_by, roles)
    with transaction.atomic():
        answers = groups.put_group_roles(actor=actor, asked_by=asked_by, runner=runner, roles=roles)
        match_managers([runner.pk])
    return answers


def remove_groups(*, actor: Actor, runner: Runner, group_names: Collection[str]) -> None:
    """Take roles away; engagements for those groups end at the scheduler's next pass."""
    with transaction.atomic():
        groups.remove_group_roles(actor=actor, runner=runner, group_names=group_names)
        match_managers([runner.pk])


def decide_consent(
    *, actor: Actor, decided_by: User, runner: Runner, group: Group, accept: bool
) -> ConsentState:
    """The group's answer, given by one of its Admins (the caller checked that). Idempotent."""
    with transaction.atomic():
        answer = groups.decide_consent(
            actor=actor, decided_by=decided_by, runner=runner, group=group, accept=accept
        )
        match_managers([runner.pk])
    return answer


def _replace(actor: Actor, runner: Runner, column: str, texts: Collection[str]) -> None:
    values = sorted(set(texts))
    changes: Mapping[str, object] = {column: values, "updated_at": Now()}
    with transaction.atomic():
        Runner.objects.filter(pk=runner.pk).update(**changes)
        record(
            actor=actor,
            action=f"manager.{column}",
            target=str(runner.uuid),
            detail={column: values},
        )
