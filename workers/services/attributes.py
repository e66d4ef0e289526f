"""Tags and labels of a worker. Claims read tags when they happen, so a change acts at once."""

from collections.abc import Collection, Mapping

from django.db import transaction
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.services.audit import record
from core.errors import InvalidInput
from mitosis_protocol.enums import DesiredState
from mitosis_protocol.node_calls import NODE_TAG_PREFIX
from runners.models import Runner


def replace_tags(*, actor: Actor, runner: Runner, tags: Collection[str]) -> None:
    """What the worker has; tasks must ask for nothing else."""
    check_own_tags(tags)
    _replace(actor, runner, "tags", tags)


def check_own_tags(tags: Collection[str]) -> None:
    """Node types come from a direct worker's session alone. Raises InvalidInput."""
    if any(tag.startswith(NODE_TAG_PREFIX) for tag in tags):
        raise InvalidInput(f"tags: `{NODE_TAG_PREFIX}` is reserved for what a session registers")


def release_from_quarantine(runner: Runner) -> None:
    """Two processes with one token were the reason; after a new token there is only one."""
    rows = Runner.objects.filter(pk=runner.pk, desired_state=DesiredState.QUARANTINED)
    rows.update(desired_state=DesiredState.ACTIVE, updated_at=Now())


def replace_labels(*, actor: Actor, runner: Runner, labels: Collection[str]) -> None:
    """Notes for people and filters; they never decide who gets a task."""
    _replace(actor, runner, "labels", labels)


def _replace(actor: Actor, runner: Runner, column: str, texts: Collection[str]) -> None:
    if not texts:
        raise InvalidInput(f"{column.capitalize()} cannot be empty")
    values = sorted(set(texts))
    changes: Mapping[str, object] = {column: values, "updated_at": Now()}
    with transaction.atomic():
        Runner.objects.filter(pk=runner.pk).update(**changes)
        record(
            actor=actor,
            action=f"worker.{column}",
            target=str(runner.uuid),
            detail={column: values},
        )
