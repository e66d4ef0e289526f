"""Reads of tasks by uuid, with the caller's role checked; a foreign task is absent.

Called by the API of tasks and workers and by services. A task moves from the active table to the
archive and never back, so looking there in this order finds every task that exists.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias, cast
from uuid import UUID

from accounts.models import Group, Membership, User
from accounts.permissions import at_least
from core.errors import NotFound, PermissionDenied
from mitosis_protocol.enums import Role
from tasks.models import ActiveTask, ArchivedTask

Task: TypeAlias = ActiveTask | ArchivedTask


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """What batch operations need of a task: whose it is and which attempt counts."""

    id: int
    uuid: UUID
    group_id: int
    attempt: int


def find_task(task_uuid: UUID) -> Task | None:
    """A task wherever it is, whoever asks."""
    active = ActiveTask.objects.select_related("group", "creator").filter(uuid=task_uuid).first()
    if active is not None:
        return active
    return ArchivedTask.objects.select_related("group", "creator").filter(uuid=task_uuid).first()


def get_task(task_uuid: UUID) -> Task:
    """A task, whoever asks: for admin routes and runners, never for tenants."""
    task = find_task(task_uuid)
    if task is None:
        raise absent(task_uuid)
    return task


def access_task(actor: User, task_uuid: UUID, role: Role) -> Task:
    """The task, if `actor` holds `role` or more in its group; NotFound for strangers."""
    task = find_task(task_uuid)
    held = None if task is None else find_roles(actor, [task.group_id]).get(task.group_id)
    if task is None or held is None:
        raise absent(task_uuid)
    if not at_least(held, role):
        raise PermissionDenied
    return task


def absent(task_uuid: UUID) -> NotFound:
    """The one answer for a task that does not exist, or not for this caller."""
    return NotFound(f"Task {task_uuid} not found")


def find_roles(actor: User, group_ids: Collection[int] | None = None) -> dict[int, Role]:
    """The caller's role by group id; groups the caller does not belong to are missing."""
    rows = Membership.objects.filter(user_id=actor.pk)
    if group_ids is not None:
        rows = rows.filter(group_id__in=group_ids)
    return {pk: cast("Role", role) for pk, role in rows.values_list("group_id", "role")}


def list_places(
    actor: User, task_uuids: Collection[UUID], role: Role, *, only_active: bool = False
) -> dict[UUID, TaskPlace]:
    """Those of the tasks on which the caller has `role`; the rest is left out without a reason."""
    found = _places(ActiveTask, task_uuids)
    if not only_active:
        # The archive wins: a task found in both tables has just moved.
        found |= _places(ArchivedTask, task_uuids)
    roles = find_roles(actor, {place.group_id for place in found.values()})
    return {
        uuid: place for uuid, place in found.items() if at_least(roles.get(place.group_id), role)
    }


def _places(
    model: type[ActiveTask] | type[ArchivedTask], task_uuids: Collection[UUID]
) -> dict[UUID, TaskPlace]:
    rows = model._default_manager.filter(uuid__in=task_uuids)  # noqa: SLF001 - Django's public API
    values = rows.values_list("id", "uuid", "group_id", "attempt")
    return {row[1]: TaskPlace(*row) for row in values}


def names_of_users(user_ids: Iterable[int]) -> dict[int, str]:
    """User names by id, for listings."""
    rows = User.objects.filter(pk__in=set(user_ids))
    return dict(rows.values_list("pk", "username"))


def names_of_groups(group_ids: Iterable[int]) -> dict[int, str]:
    """Group names by id, for listings."""
    rows = Group.objects.filter(pk__in=set(group_ids))
    return dict(rows.values_list("pk", "name"))
