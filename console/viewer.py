"""Who looks: an operator, who sees everything, or a member, who sees what his groups have.

Asked by every page and panel. The rules are those of the API's selectors; an operator is a user
with the admin flag, as in the admin site. What that flag does not give there (tenants' output and
secrets, running their tasks again, answering for their groups) takes a role here too.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from accounts.models import Membership, User
from accounts.permissions import at_least
from accounts.selectors import find_role
from core.errors import NotFound, PermissionDenied
from managers.models import NodeManager
from managers.selectors import access_manager
from mitosis_protocol.enums import Role
from runners.selectors import find_reach
from suites.models import TaskSuite
from suites.selectors import access_suite, find_suite
from tasks.selectors import Task, access_task, find_roles, get_task

Thing = TypeVar("Thing", TaskSuite, NodeManager, Task)


@dataclass(frozen=True, slots=True)
class Viewer:
    """`member_id` is the user whose groups count; None for an operator."""

    member_id: int | None

    def group_ids(self) -> list[int] | None:
        """The groups whose things may be shown; None: all."""
        if self.member_id is None:
            return None
        rows = Membership.objects.filter(user_id=self.member_id)
        return list(rows.values_list("group_id", flat=True))

    def group_names(self) -> list[str]:
        """What a member may choose from; an operator types a name."""
        if self.member_id is None:
            return []
        rows = Membership.objects.filter(user_id=self.member_id).order_by("group__name")
        return list(rows.values_list("group__name", flat=True))


EVERYTHING = Viewer(None)


def viewer_of(user: User) -> Viewer:
    return EVERYTHING if user.is_staff else Viewer(user.pk)


@dataclass(frozen=True, slots=True)
class Seen(Generic[Thing]):
    """A thing somebody looks at, the role he holds on it, and whether he may act on it."""

    thing: Thing
    role: Role | None
    may_act: bool

    @property
    def is_member(self) -> bool:
        return self.role is not None


def see_suite(user: User, suite_uuid: UUID) -> Seen[TaskSuite]:
    """Raises NotFound for strangers."""
    if not user.is_staff:
        found = access_suite(user, suite_uuid, Role.READ)
        return Seen(found.suite, found.role, at_least(found.role, Role.WRITE))
    suite = find_suite(suite_uuid)
    if suite is None:
        raise NotFound(f"Suite {suite_uuid} not found")
    return Seen(suite, find_role(user_id=user.pk, group_id=suite.group_id), may_act=True)


def see_task(user: User, task_uuid: UUID) -> Seen[Task]:
    """Raises NotFound for strangers."""
    is_operator = user.is_staff
    task = get_task(task_uuid) if is_operator else access_task(user, task_uuid, Role.READ)
    role = find_roles(user, [task.group_id]).get(task.group_id)
    return Seen(task, role, is_operator or at_least(role, Role.WRITE))


def see_manager(user: User, manager_uuid: UUID) -> Seen[NodeManager]:
    """Raises NotFound for whoever does not reach it. Acting takes Admin on both links."""
    if not user.is_staff:
        node = access_manager(user, manager_uuid, Role.READ)
    else:
        node = _any_manager(manager_uuid)
    role = find_reach(user_id=user.pk, runner_id=node.pk)
    return Seen(node, role, user.is_staff or at_least(role, Role.ADMIN))


def require_action(seen: Seen[Thing]) -> Thing:
    """The thing, for whoever may act on it; he knows that it exists."""
    if not seen.may_act:
        raise PermissionDenied
    return seen.thing


def require_role(seen: Seen[Thing], role: Role) -> Thing:
    """The thing, where being an operator is not enough."""
    if not at_least(seen.role, role):
        raise PermissionDenied(f"This takes {role.value} in the group")
    return seen.thing


def _any_manager(manager_uuid: UUID) -> NodeManager:
    rows = NodeManager.objects.select_related("runner", "runner__owner", "runner__lease")
    node = rows.filter(runner__uuid=manager_uuid, runner__revoked_at__isnull=True).first()
    if node is None:
        raise NotFound(f"Manager {manager_uuid} not found")
    return node
