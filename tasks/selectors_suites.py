"""What tasks need to know of suites: uuids for listings, and the suite a caller names."""

from collections.abc import Collection
from uuid import UUID

from core.errors import NotFound
from suites.models import TaskSuite
from tasks.models import TaskRerun


def uuids_of_suites(suite_ids: Collection[int]) -> dict[int, UUID]:
    if not suite_ids:
        return {}
    return dict(TaskSuite.objects.filter(pk__in=suite_ids).values_list("pk", "uuid"))


def get_group_suite(group_id: int, suite_uuid: UUID) -> TaskSuite:
    """A suite of that group; one of another group is absent."""
    suite: TaskSuite | None = TaskSuite.objects.filter(group_id=group_id, uuid=suite_uuid).first()
    if suite is None:
        raise NotFound(f"Suite {suite_uuid} not found")
    return suite


def originals_of(task_ids: Collection[int]) -> dict[int, UUID]:
    """For reruns among the tasks: the task that each of them runs again."""
    if not task_ids:
        return {}
    rows = TaskRerun.objects.filter(pk__in=task_ids)
    return dict(rows.values_list("pk", "original_uuid"))
