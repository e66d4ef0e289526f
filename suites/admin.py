"""The console's page for suites: where each stands, and its life by hand, after a confirmation.

Read-only where the system owns the value, which is everywhere: actions call the same services as
the API. Eligibility and engagements are in managers.admin, failures in tasks.admin. Environment
values of hooks are masked, as they are for tasks.
"""

import json
from collections.abc import Callable
from typing import Any, ClassVar, Final
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import transaction
from django.db.models import OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from typing_extensions import override

from accounts.actors import Actor
from accounts.admin import operator
from accounts.selectors import find_group
from core.admin import AuditedAction, ReadOnlyAdmin
from core.redaction import redact_value
from managers.services.engagement import forgive_preparations
from suites.models import TaskSuite
from suites.services.lifecycle import close_suite, reopen_suite
from suites.services.pausing import pause_suite, resume_suite
from tasks.models import SuiteCountDelta
from tasks.services.suite_cancel import cancel_suite
from tasks.services.suite_hints import tell_cancelled, tell_closed, tell_paused, tell_resumed

MAX_CONFIRMED: Final = 1000  # rows of one action; each is a transaction of its own
MAX_NAMED: Final = 50  # rows the confirmation shows by name
CONSOLE_REASON: Final = "cancelled by an operator"


_HALTS: Final[dict[str, dict[str, bool]]] = {
    "paused": {"paused_at__isnull": False},
    "blocked": {"blocked_at__isnull": False},
    "none": {"paused_at__isnull": True, "blocked_at__isnull": True},
}


class HaltFilter(admin.SimpleListFilter):
    """Suites that hand out nothing, though their state would let them."""

    title = "halt"
    parameter_name = "halt"

    @override
    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("paused", "Paused"), ("blocked", "Blocked"), ("none", "Neither")]

    @override
    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        conditions = _HALTS.get(self.value() or "")
        return queryset if conditions is None else queryset.filter(**conditions)


@admin.register(TaskSuite)
class TaskSuiteAdmin(AuditedAction, ReadOnlyAdmin):
    list_display = (
        *("uuid", "name", "group", "state", "halt", "priority", "total", "pending", "failed"),
        *("last_task_submitted_at", "created_at"),
    )
    list_select_related = ("group",)
    list_filter = ("state", HaltFilter, "auto_match", "on_partition")
    search_fields = ("pk",)  # only so that the box is shown
    search_help_text = "A uuid, the name of a group, a label, or part of a suite's name."
    exclude = ("env_preparation", "env_cleanup")
    readonly_fields = ("total", "pending", "failed", "preparation_hook", "cleanup_hook")
    actions = ("close", "reopen", "pause", "resume", "cancel")
    ordering: ClassVar = ("-pk",)

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With counts: one subquery per shown row, inside the one statement of the page."""
        counts = SuiteCountDelta.objects.filter(suite_id=OuterRef("pk")).values("suite_id")
        sums = {f"{name}_sum": _sum(counts, name) for name in ("total", "pending", "failed")}
        rows: QuerySet[Any] = super().get_queryset(request).annotate(**sums)
        return rows

    @override
    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        return _search(queryset, term), False

    @override
    def view_on_site(self, obj: Any) -> str:
        """The live page."""
        return reverse("console-suite", args=[obj.uuid])

    @admin.display(description="halt")
    def halt(self, suite: TaskSuite) -> str:
        if suite.blocked_reason is not None:
            return f"blocked: {suite.blocked_reason[:80]}"
        return "" if suite.paused_at is None else "paused"

    @admin.display(description="tasks")
    def total(self, suite: Any) -> int:
        return int(suite.total_sum)

    @admin.display(description="pending")
    def pending(self, suite: Any) -> int:
        return int(suite.pending_sum)

    @admin.display(description="failed")
    def failed(self, suite: Any) -> int:
        return int(suite.failed_sum)

    @admin.display(description="preparation")
    def preparation_hook(self, suite: TaskSuite) -> str:
        return _masked(suite.env_preparation)

    @admin.display(description="cleanup")
    def cleanup_hook(self, suite: TaskSuite) -> str:
        return _masked(suite.env_cleanup)

    @admin.action(description="Close: no more tasks are expected")
    def close(self, request: HttpRequest, queryset: QuerySet[TaskSuite]) -> HttpResponse | None:
        return self._confirmed(request, queryset, "close", _close)

    @admin.action(description="Reopen: take tasks again")
    def reopen(self, request: HttpRequest, queryset: QuerySet[TaskSuite]) -> HttpResponse | None:
        return self._confirmed(request, queryset, "reopen", _reopen)

    @admin.action(description="Pause: hand out nothing more")
    def pause(self, request: HttpRequest, queryset: QuerySet[TaskSuite]) -> HttpResponse | None:
        return self._confirmed(request, queryset, "pause", _pause)

    @admin.action(description="Resume: end a pause or a block")
    def resume(self, request: HttpRequest, queryset: QuerySet[TaskSuite]) -> HttpResponse | None:
        return self._confirmed(request, queryset, "resume", _resume)

    @admin.action(description="Cancel with all tasks, for good")
    def cancel(self, request: HttpRequest, queryset: QuerySet[TaskSuite]) -> HttpResponse | None:
        return self._confirmed(request, queryset, "cancel", _cancel)

    def _confirmed(
        self,
        request: HttpRequest,
        queryset: QuerySet[TaskSuite],
        verb: str,
        call: Callable[[Actor, TaskSuite], None],
    ) -> HttpResponse | None:
        """Ask first; with the answer, act on exactly the rows that were shown."""
        rows = list(queryset.select_related("group", "creator")[:MAX_CONFIRMED])
        if request.POST.get("confirmed") != "yes":
            return self._question(request, rows, verb)
        actor = operator(request)
        self.run_action(request, rows, verb, lambda suite: call(actor, suite))
        return None

    def _question(self, request: HttpRequest, rows: list[TaskSuite], verb: str) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": f"{verb.capitalize()} {len(rows)} suites?",
            "opts": self.opts,
            "verb": verb,
            "rows": rows[:MAX_NAMED],
            "hidden_count": max(0, len(rows) - MAX_NAMED),
            "chosen": [row.pk for row in rows],
            "checkbox_name": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/suites/confirm_action.html", context)


def _sum(counts: QuerySet[Any], name: str) -> Coalesce:
    return Coalesce(Subquery(counts.annotate(n=Sum(name)).values("n")), 0)


def _search(rows: QuerySet[Any], term: str) -> QuerySet[Any]:
    if "\x00" in term:
        return rows.none()
    try:
        return rows.filter(uuid=UUID(term))
    except ValueError:
        pass
    group = find_group(term)
    if group is not None:
        return rows.filter(group=group)
    return rows.filter(Q(labels__contains=[term]) | Q(name__icontains=term))


def _masked(hook: object) -> str:
    return "" if hook is None else json.dumps(redact_value(hook), indent=2, sort_keys=True)


def _close(actor: Actor, suite: TaskSuite) -> None:
    close_suite(actor=actor, suite=suite)
    tell_closed(suite)


def _reopen(actor: Actor, suite: TaskSuite) -> None:
    reopen_suite(actor=actor, suite=suite)


def _pause(actor: Actor, suite: TaskSuite) -> None:
    pause_suite(actor=actor, suite=suite)
    tell_paused(suite)


def _resume(actor: Actor, suite: TaskSuite) -> None:
    with transaction.atomic():
        resume_suite(actor=actor, suite=suite)
        forgive_preparations(suite)
    tell_resumed(suite)


def _cancel(actor: Actor, suite: TaskSuite) -> None:
    batch = settings.MITOSIS.sweep_batch
    cancel_suite(actor=actor, suite=suite, reason=CONSOLE_REASON, stop_running=True, batch=batch)
    tell_cancelled(suite, reason=CONSOLE_REASON, stop_running=True)
