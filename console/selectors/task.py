"""What the page of one task shows beside its row: attempts, events, neighbours, archives."""

from dataclasses import dataclass
from typing import Final

from console.selectors.names import Names, names_of
from tasks.models import (
    ActiveTask,
    ArchivedTask,
    Artifact,
    TaskAttempt,
    TaskDependency,
    TaskEvent,
    TaskRerun,
)
from tasks.selectors import Task
from tasks.selectors_uploads import list_artifacts

MAX_ATTEMPTS: Final = 50
MAX_EVENTS: Final = 200
MAX_UPSTREAM: Final = 50


@dataclass(frozen=True, slots=True)
class TaskStory:
    """Newest first where it grows."""

    attempts: list[TaskAttempt]
    events: list[TaskEvent]
    artifacts: list[Artifact]
    upstream: list[Task]
    rerun_of: TaskRerun | None
    rerun_as: TaskRerun | None
    names: Names


def read_story(task: Task) -> TaskStory:
    attempts = list(TaskAttempt.objects.filter(task_id=task.pk).order_by("-attempt")[:MAX_ATTEMPTS])
    # By (task_id, seq), which is an index; the model's own key is not.
    events = list(TaskEvent.objects.filter(task_id=task.pk).order_by("-seq")[:MAX_EVENTS])
    runners = {row.runner_id for row in attempts}
    runners |= {row.runner_id for row in events if row.runner_id is not None}
    return TaskStory(
        attempts=attempts,
        events=events,
        artifacts=list_artifacts(task),
        upstream=_upstream(task),
        rerun_of=TaskRerun.objects.filter(pk=task.pk).first(),
        rerun_as=TaskRerun.objects.filter(original_id=task.pk).first(),
        names=names_of(
            groups={task.group_id},
            suites=set() if task.suite_id is None else {task.suite_id},
            runners=runners,
        ),
    )


def _upstream(task: Task) -> list[Task]:
    edges = TaskDependency.objects.filter(task_id=task.pk).order_by("upstream_id")
    ids = list(edges.values_list("upstream_id", flat=True)[:MAX_UPSTREAM])
    if not ids:
        return []
    found: dict[int, Task] = {row.pk: row for row in ActiveTask.objects.filter(pk__in=ids)}
    found |= {row.pk: row for row in ArchivedTask.objects.filter(pk__in=ids)}
    return [found[pk] for pk in ids if pk in found]
