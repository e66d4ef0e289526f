"""The console's pages for tasks and what they left behind. Read-only, but for one action: cancel.

Safe with millions of rows: pages follow the primary key, nothing is counted to the end, and the
search box asks indexes only (a uuid, a group's name, or a whole label). Environment values of a
task are masked here: operators run the fleet, they do not read tenants' secrets.
"""

import json
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import models
from django.db.models import QuerySet
from django.db.models.expressions import OrderBy, RawSQL
from django.http import HttpRequest
from django.urls import reverse
from typing_extensions import override

from accounts.selectors import find_group
from core.admin import AuditedAction, KeysetAdmin
from core.errors import Conflict
from core.redaction import redact_value
from tasks.models import (
    ActiveTask,
    ArchivedTask,
    Artifact,
    Attachment,
    TaskAttempt,
    TaskEvent,
    TaskExecutionFailure,
)
from tasks.selectors import Task, find_task
from tasks.services.cancel import cancel_tasks
from tasks.services.stop_hints import tell_to_stop

_MASKED = ("spec", "affinity", "resource_refs", "middleware")


class IndexedSearch(KeysetAdmin):
    """A search box whose every answer comes from an index; says what it takes."""

    search_fields = ("pk",)  # only so that the box is shown

    @override
    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if "\x00" in term:
            return queryset.none(), False
        return self.search(queryset, term, _uuid(term)), False

    def search(self, rows: QuerySet[Any], term: str, uuid: UUID | None) -> QuerySet[Any]:
        """Rows for `term`, which is also `uuid` when it looks like one."""
        raise NotImplementedError


class TaskAdmin(IndexedSearch):
    """What both tables of tasks share."""

    search_help_text = "The uuid of a task, the name of a group, or a label."
    list_select_related = ("group", "creator")
    exclude = _MASKED
    readonly_fields = ("masked_spec",)

    @override
    def search(self, rows: QuerySet[Any], term: str, uuid: UUID | None) -> QuerySet[Any]:
        if uuid is not None:
            return rows.filter(uuid=uuid)
        group = find_group(term)
        return rows.filter(labels__contains=[term]) if group is None else rows.filter(group=group)

    @override
    def view_on_site(self, obj: Any) -> str:
        """The live page."""
        return reverse("console-task", args=[obj.uuid])

    @admin.display(description="spec")
    def masked_spec(self, task: Task) -> str:
        return json.dumps(redact_value(task.spec), indent=2, sort_keys=True)

    @admin.display(description="labels")
    def shown_labels(self, task: Task) -> str:
        return ", ".join(task.labels)


@admin.register(ActiveTask)
class ActiveTaskAdmin(AuditedAction, TaskAdmin):
    list_display = (
        *("uuid", "group", "creator", "state", "priority", "attempt", "failures", "runner_id"),
        *("cancel_requested_at", "shown_labels", "created_at"),
    )
    list_filter = ("state",)
    actions = ("cancel",)

    @admin.action(description="Cancel: waiting ones end, running ones are told to stop")
    def cancel(self, request: HttpRequest, queryset: QuerySet[ActiveTask]) -> None:
        self.run_action(request, queryset, "cancel", _cancel)


@admin.register(ArchivedTask)
class ArchivedTaskAdmin(TaskAdmin):
    list_display = (
        *("uuid", "group", "creator", "outcome", "exit_status", "msg", "attempt", "failures"),
        *("shown_labels", "ended_at"),
    )
    list_filter = ("outcome", "msg")


class OfOneTask(IndexedSearch):
    """Rows that belong to a task; the search box takes its uuid."""

    search_help_text = "The uuid of a task."

    @override
    def search(self, rows: QuerySet[Any], term: str, uuid: UUID | None) -> QuerySet[Any]:
        task = None if uuid is None else find_task(uuid)
        return rows.none() if task is None else rows.filter(task_id=task.pk)


@admin.register(TaskAttempt)
class TaskAttemptAdmin(OfOneTask):
    list_display = (
        *("id", "task_id", "attempt", "runner", "claimed_at", "started_at", "ended_at", "ending"),
        *("outcome", "exit_status", "reason"),
    )
    list_select_related = ("runner",)
    list_filter = ("ending", "outcome")


@admin.register(TaskExecutionFailure)
class TaskExecutionFailureAdmin(OfOneTask):
    list_display = (
        *("task_uuid", "runner", "failure_count", "last_failure_at", "worker_local_id"),
        "last_message",
    )
    list_select_related = ("runner",)

    @admin.display(description="last message")
    def last_message(self, failure: TaskExecutionFailure) -> str:
        return str(failure.error_messages[-1]) if failure.error_messages else ""


@admin.register(TaskEvent)
class TaskEventAdmin(OfOneTask):
    list_display = (
        *("at", "kind", "task_id", "seq", "attempt", "runner_id", "state", "outcome", "data"),
    )
    list_filter = ("kind",)
    # An event has no page of its own: its key is (xid, id), and looking for the id alone would
    # read the whole log.
    list_display_links = None

    change_list_template = "admin/change_list.html"

    @override
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        # Its order is no single column, so its pages are counted, up to a limit.
        return ChangeList

    @override
    def get_ordering(self, request: HttpRequest) -> list[Any]:
        # The primary key is (xid, id) and Django adds the id: newest first, straight from it.
        xid = RawSQL('"task_events"."xid"', ())
        return [OrderBy(xid, descending=True)]


@admin.register(Artifact)
class ArtifactAdmin(OfOneTask):
    list_display = ("task_uuid", "content_type", "attempt", "size", "group", "updated_at")
    list_select_related = ("group",)
    list_filter = ("content_type",)


@admin.register(Attachment)
class AttachmentAdmin(IndexedSearch):
    list_display = ("key", "group", "size", "updated_at")
    list_select_related = ("group",)
    exclude = ("sha256",)
    readonly_fields = ("checksum",)
    search_help_text = "The name of a group, or `group/key`."

    @override
    def search(self, rows: QuerySet[Any], term: str, uuid: UUID | None) -> QuerySet[Any]:
        name, _, key = term.partition("/")
        group = find_group(name)
        if group is None:
            return rows.none()
        found = rows.filter(group=group)
        return found.filter(key=key) if key else found

    @admin.display(description="sha256", empty_value="not announced")
    def checksum(self, attachment: Attachment) -> str | None:
        return None if attachment.sha256 is None else bytes(attachment.sha256).hex()


def _cancel(task: models.Model) -> None:
    batch = settings.MITOSIS.sweep_batch
    done = cancel_tasks([task.pk], stop_running=True, batch=batch)
    if not done.count:
        raise Conflict("it has ended, or is being changed at this moment")
    tell_to_stop(done)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
