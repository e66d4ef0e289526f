"""Making, changing and removing suites. Called by the suite API and the console.

The caller has authorised the group (Write). Matching managers to a new suite is the managers app's
part, in the same transaction.
"""

from typing import Any, Protocol

import msgspec
from django.db import transaction
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.ceilings import check_priority
from accounts.models import Group, User
from accounts.services.audit import record
from core.errors import Conflict, InvalidInput, LimitExceeded, PermissionDenied
from core.fields import normalised_tags
from mitosis_protocol.enums import GroupState, SuiteState
from mitosis_protocol.errors import ErrorCode, InvalidValue
from mitosis_protocol.limits import MAX_SUITES_PER_GROUP
from mitosis_protocol.suites import SuiteChange, SuiteScale, SuiteSpec
from suites.models import TaskSuite


class SuiteDefaults(Protocol):
    """The numbers a suite gets that does not bring its own; `settings.MITOSIS` is one."""

    @property
    def suite_settle_s(self) -> float: ...
    @property
    def suite_linger_s(self) -> float: ...


def create_suite(
    *, actor: Actor, creator: User, group: Group, spec: SuiteSpec, defaults: SuiteDefaults
) -> TaskSuite:
    """A new suite of `group`. Raises PermissionDenied, InvalidInput or LimitExceeded."""
    if group.state != GroupState.ACTIVE:
        raise PermissionDenied(f"group_name: the group {group.name} is not active")
    check_priority(group, spec.priority)
    _check_room(group)
    settle, linger = spec.settle_seconds, spec.linger_seconds
    with transaction.atomic():
        suite = TaskSuite.objects.create(
            group=group,
            creator=creator,
            name=spec.name,
            description=spec.description,
            tags=_tags("tags", spec.tags),
            labels=_tags("labels", spec.labels),
            priority=spec.priority,
            **_plan_columns(spec),
            settle_seconds=round(defaults.suite_settle_s) if settle is None else settle,
            linger_seconds=round(defaults.suite_linger_s) if linger is None else linger,
        )
        record(
            actor=actor,
            action="suite.create",
            target=str(suite.uuid),
            detail={"group": group.name, "workers": spec.worker_schedule.worker_count},
        )
    suite.refresh_from_db(fields=["opened_at"])
    return suite


def change_suite(*, actor: Actor, suite: TaskSuite, change: SuiteChange) -> TaskSuite:
    """Rename, relabel or reprioritise; members that were not given stay."""
    given: dict[str, Any] = {
        name: value
        for name, value in msgspec.structs.asdict(change).items()
        if value is not msgspec.UNSET
    }
    check_priority(suite.group, given.get("priority"))
    if "labels" in given:
        given["labels"] = _tags("labels", given["labels"])
    return _update(actor, suite, "suite.change", given)


def scale_suite(*, actor: Actor, suite: TaskSuite, scale: SuiteScale) -> TaskSuite:
    """Change the worker plan or the cap on running tasks. Refused for a cancelled suite."""
    if suite.state == SuiteState.CANCELLED:
        raise Conflict("A cancelled suite cannot be scaled", code=ErrorCode.SUITE_CANCELLED)
    given: dict[str, Any] = {}
    if scale.worker_schedule is not msgspec.UNSET:
        given["worker_schedule"] = msgspec.to_builtins(scale.worker_schedule)
    if scale.max_running is not msgspec.UNSET:
        given["max_running"] = scale.max_running
    return _update(actor, suite, "suite.scale", given)


def delete_suite(*, actor: Actor, suite: TaskSuite) -> None:
    """Remove a suite that never had a task; anything else is history and stays (Conflict)."""
    with transaction.atomic():
        # Locked before it is looked at: a submit that came first has moved the count by then.
        rows = TaskSuite.objects.select_for_update().filter(pk=suite.pk, submit_count=0)
        if not rows:
            raise Conflict("The suite has had tasks", code=ErrorCode.SUITE_NOT_EMPTY)
        TaskSuite.objects.filter(pk=suite.pk).delete()
        record(actor=actor, action="suite.delete", target=str(suite.uuid))


def _update(actor: Actor, suite: TaskSuite, action: str, given: dict[str, Any]) -> TaskSuite:
    if not given:
        raise InvalidInput("nothing to change was given")
    with transaction.atomic():
        TaskSuite.objects.filter(pk=suite.pk).update(**given, updated_at=Now())
        record(actor=actor, action=action, target=str(suite.uuid), detail={"set": sorted(given)})
    return TaskSuite.objects.select_related("group", "creator").get(pk=suite.pk)


def _plan_columns(spec: SuiteSpec) -> dict[str, Any]:
    return {
        "worker_schedule": msgspec.to_builtins(spec.worker_schedule),
        "env_preparation": msgspec.to_builtins(spec.env_preparation),
        "env_cleanup": msgspec.to_builtins(spec.env_cleanup),
        "limits": msgspec.to_builtins(spec.limits),
        "retry": msgspec.to_builtins(spec.retry),
        "max_running": spec.max_running,
        "max_failures": spec.max_failures,
        "failure_rate": spec.failure_rate,
        "auto_match": spec.auto_match,
        "on_partition": spec.on_partition,
    }


def _check_room(group: Group) -> None:
    # Not exact under concurrency, and need not be: it keeps one tenant from filling the table.
    live = TaskSuite.objects.live().filter(group=group)[:MAX_SUITES_PER_GROUP].count()
    if live >= MAX_SUITES_PER_GROUP:
        raise LimitExceeded(f"group_name: {group.name} has {live} suites that are not complete")


def _tags(field: str, texts: list[str]) -> list[str]:
    try:
        return normalised_tags(texts)
    except InvalidValue as error:
        raise InvalidInput(f"{field}: {error}") from error
