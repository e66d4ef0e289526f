"""Where a submit goes: the group and suite it names, checked once per request and name."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar, cast
from uuid import UUID

from accounts.ceilings import check_priority
from accounts.models import Group, User
from accounts.selectors import access_group
from core.errors import DomainError, InvalidInput
from mitosis_protocol.enums import ConsentState, GroupState, Role, SuiteState
from mitosis_protocol.errors import ErrorCode
from runners.models import GroupRunner
from suites.models import TaskSuite
from tasks.new_task import NewTask
from tasks.selectors_suites import get_group_suite
from tasks.serializers_submit import SubmitTask, new_task
from tasks.services.submit import Target
from workers.selectors_resources import missing_resources

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Place:
    """A group the caller may submit to, and the suite in it."""

    group: Group
    suite: TaskSuite | None

    @property
    def target(self) -> Target:
        return Target(self.group.pk, None if self.suite is None else self.suite.pk)


class Targets:
    """The places of one request: 10,000 tasks usually name one group."""

    def __init__(self, user: User) -> None:
        self._user = user
        self._known: dict[Hashable, object] = {}

    def place(self, body: SubmitTask) -> Place:
        """Raises NotFound for what the caller may not see, PermissionDenied, InvalidInput."""
        name, suite_uuid = body.group_name, body.suite_uuid
        group = self._once(("group", name), lambda: _open_group(self._user, name))
        if suite_uuid is None:
            return Place(group, None)
        key = ("suite", group.pk, suite_uuid)
        return Place(group, self._once(key, lambda: _open_suite(group, suite_uuid)))

    def task(self, body: SubmitTask, place: Place) -> NewTask:
        """The task to store. Raises InvalidInput."""
        check_priority(place.group, body.priority)
        worker = _named_worker(body)
        pinned = None
        if worker is not None:
            key = ("worker", place.group.pk, worker)
            pinned = self._once(key, lambda: _runner_serving(place.group, worker))
            _check_resources(pinned, [ref.resource_id for ref in body.resource_refs or ()])
        return new_task(body, suite=place.suite, pinned_runner_id=pinned)

    def _once(self, key: Hashable, find: Callable[[], Found]) -> Found:
        """Refusals are remembered as well: the same name fails the same way."""
        if key not in self._known:
            try:
                self._known[key] = find()
            except DomainError as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, DomainError):
            raise known
        return cast("Found", known)


def _open_group(user: User, name: str) -> Group:
    group = access_group(user, name, Role.WRITE).group
    if group.state != GroupState.ACTIVE:
        raise InvalidInput(f"group_name: the group {name} is not active")
    return group


def _open_suite(group: Group, suite_uuid: UUID) -> TaskSuite:
    """Refused here so that the other items of a batch are taken; the submit itself has the say."""
    suite = get_group_suite(group.pk, suite_uuid)
    if suite.state == SuiteState.CANCELLED:
        raise InvalidInput(
            f"suite_uuid: the suite {suite_uuid} is cancelled and takes no more tasks",
            code=ErrorCode.SUITE_CANCELLED,
        )
    return suite


def _named_worker(body: SubmitTask) -> UUID | None:
    """Resources live on one worker, so a task that needs them can run nowhere else."""
    named = {ref.worker_id for ref in body.resource_refs or ()}
    if len(named) > 1:
        raise InvalidInput("resource_refs: the resources are on different workers")
    return next(iter(named), None)


def _runner_serving(group: Group, worker: UUID) -> int:
    rows = GroupRunner.objects.filter(
        group_id=group.pk,
        runner__uuid=worker,
        runner__revoked_at__isnull=True,
        consent=ConsentState.ACCEPTED,
        role__in=[Role.WRITE, Role.ADMIN],
    )
    runner_id = rows.values_list("runner_id", flat=True).first()
    if runner_id is None:
        raise InvalidInput(f"resource_refs: no worker {worker} serves the group {group.name}")
    return int(runner_id)


def _check_resources(runner_id: int, resource_ids: list[str]) -> None:
    """Fail now rather than on the worker: what is not there cannot be referred to."""
    missing = missing_resources(runner_id, resource_ids)
    if missing:
        raise InvalidInput(f"resource_refs: the worker does not have {', '.join(missing[:10])}")
