"""One task: its page, why it waits, cancel and rerun."""

from typing import Final
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from accounts.actors import user_actor
from accounts.models import User
from accounts.services.audit import record
from console.pages.explaining import explanation_context
from console.pages.shell import deed, done, is_confirmed, page, question, show
from console.panels.table import build
from console.panels.topics import Topic
from console.viewer import require_action, require_role, see_task
from core.errors import Conflict, InvalidInput
from core.redaction import redact_value
from mitosis_protocol.enums import Outcome, Role
from suites.models import TaskSuite
from tasks.models import ArchivedTask
from tasks.services.cancel import cancel_tasks
from tasks.services.explain import explain_task
from tasks.services.stop_hints import tell_to_stop
from tasks.services.suite_hints import tell_of_work
from tasks.services.suite_rerun import rerun_tasks

SECTION: Final = "console-tasks"


@page
def task_page(request: HttpRequest, user: User, task_uuid: UUID) -> HttpResponse:
    seen = see_task(user, task_uuid)
    task = seen.thing
    is_over = isinstance(task, ArchivedTask)
    may_write = seen.role is not None and seen.role.allows(Role.WRITE)
    context = {
        "task": task,
        "seen": seen,
        "is_over": is_over,
        "regions": build(Topic("task", str(task_uuid))).html,
        "may_cancel": seen.may_act,
        "may_rerun": may_write,
        "spec": redact_value(task.spec),
        "limits": task.limits,
    }
    return show(request, "task", context, section=SECTION)


@page
def task_explain(request: HttpRequest, user: User, task_uuid: UUID) -> HttpResponse:
    seen = see_task(user, task_uuid)
    asker = user if seen.is_member else seen.thing.creator
    context = explanation_context(explain_task(user=asker, task=seen.thing))
    back = reverse("console-task", args=[task_uuid])
    return show(request, "explain", {**context, "title": task_uuid, "back": back}, section=SECTION)


@deed
def task_cancel(request: HttpRequest, user: User, task_uuid: UUID) -> HttpResponse:
    task = require_action(see_task(user, task_uuid))
    if not is_confirmed(request):
        return question(
            request,
            title="Cancel this task?",
            text=f"Task {task_uuid}. One that runs is told to stop.",
            back=reverse("console-task", args=[task_uuid]),
        )
    done_ = cancel_tasks([task.pk], stop_running=True, batch=settings.MITOSIS.sweep_batch)
    if not done_.count:
        raise Conflict("The task has ended, or is being changed at this moment")
    record(actor=user_actor(user, request), action="task.cancel", target=str(task.uuid))
    tell_to_stop(done_)
    return done(request, "Cancel: done", "console-task", task_uuid)


@deed
def task_rerun(request: HttpRequest, user: User, task_uuid: UUID) -> HttpResponse:
    """A new task in the name of this user, so it takes Write in the group, operator or not."""
    task = require_role(see_task(user, task_uuid), Role.WRITE)
    if task.suite_id is None:
        raise InvalidInput("A task without a suite is submitted again, not rerun")
    if not is_confirmed(request):
        return question(
            request,
            title="Run this task again?",
            text=f"Task {task_uuid} keeps its outcome; a new task does the same work.",
            back=reverse("console-task", args=[task_uuid]),
        )
    suite = TaskSuite.objects.select_related("group", "creator").get(pk=task.suite_id)
    made = rerun_tasks(
        actor=user_actor(user, request),
        user=user,
        suite=suite,
        outcomes=tuple(Outcome),
        task_uuids=[task.uuid],
    )
    if not made.tasks:
        raise Conflict("The task has not ended, or was run again before")
    tell_of_work(suite)
    return done(request, "This is the new run", "console-task", made.tasks[0].uuid)
