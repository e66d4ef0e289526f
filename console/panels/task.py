"""One task: where it stands, its attempts, archives and events."""

from typing import Final
from uuid import UUID

from console.panels.offers import task_offers
from console.panels.topics import Panel, Shown, Topic, part
from console.selectors.failures import cause_of
from console.selectors.stamps import task_stamps
from console.selectors.task import read_story
from mitosis_protocol.enums import Outcome
from tasks.models import ArchivedTask
from tasks.selectors import Task, get_task


def build_task(topic: Topic) -> Shown:
    """The caller has checked that the viewer may see this task."""
    task = get_task(UUID(topic.target))
    story = read_story(task)
    is_over = isinstance(task, ArchivedTask)
    context = {
        "task": task,
        "story": story,
        "is_over": is_over,
        "cause": _cause(task),
        "offers": task_offers(task),
    }
    return Shown(
        {
            "state": part("task_state", context),
            "attempts": part("task_attempts", context),
            "artifacts": part("task_artifacts", context),
            "events": part("task_events", context),
        },
        {"task": {"attempt": task.attempt, "is_over": is_over}},
    )


def _cause(task: Task) -> str | None:
    if not isinstance(task, ArchivedTask) or task.outcome is Outcome.SUCCEEDED:
        return None
    msg = None if task.msg is None else task.msg.code
    return cause_of(task.outcome, task.exit_status, msg, task.reason)


TASK: Final = Panel(build_task, every_s=1.0, stamps=task_stamps)
