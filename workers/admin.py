"""The console's page for workers: who is alive, until when, with which task; and their shutdown."""

from collections.abc import Iterable
from typing import Any, Final, cast
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Now
from django.http import HttpRequest
from typing_extensions import override

from accounts.admin import operator
from core.admin import AuditedAction, ReadOnlyAdmin
from mitosis_protocol.enums import RunnerKind, ShutdownOp
from mitosis_protocol.timestamps import format_rfc3339
from tasks.models import ActiveTask
from tasks.services.reclaim import Swept, reclaim_from_runners
from workers.models import Worker, WorkerStatus
from workers.selectors import last_heartbeat, wire_state
from workers.services.departure import shut_down

LIVES: Final = (WorkerStatus.ACTIVE, WorkerStatus.STALE, WorkerStatus.INACTIVE)


class LifeFilter(admin.SimpleListFilter):
    """By lease and departure, in the words of the view `worker_status`."""

    title = "life"
    parameter_name = "life"

    @override
    def lookups(
        self, request: HttpRequest, model_admin: "admin.ModelAdmin[Any]"
    ) -> Iterable[tuple[str, str]]:
        return [(word, word) for word in LIVES]

    @override
    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if chosen is None:
            return queryset
        rows = queryset.filter(runner__revoked_at__isnull=chosen != "inactive")
        if chosen == "active":
            return rows.filter(runner__lease__expires_at__gt=Now())
        return rows.filter(runner__lease__expires_at__lte=Now()) if chosen == "stale" else rows


@admin.register(Worker)
class WorkerAdmin(AuditedAction, ReadOnlyAdmin):
    list_display = (
        "uuid",
        "kind",
        "owner",
        "life",
        "state",
        "lease_until",
        "last_beat",
        "held_task",
        "tags",
    )
    list_filter = (LifeFilter, "runner__kind", "runner__desired_state")
    search_fields = ("=runner__uuid", "=runner__owner__username")
    fields = (
        *("uuid", "kind", "owner", "life", "state", "lease_until", "last_beat", "held_task"),
        *("tags", "labels", "metadata", "metadata_at"),
    )
    readonly_fields = fields
    actions = ("shut_down_gracefully", "shut_down_by_force")

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        held = ActiveTask.objects.filter(runner_id=OuterRef("pk")).order_by("-attempt_id")
        rows = super().get_queryset(request).select_related("runner__owner", "runner__lease")
        annotated: QuerySet[Worker] = rows.annotate(
            held=Subquery(held.values("uuid")[:1]), now=Now()
        )
        return annotated

    @admin.action(description="Shut down: finish the task in hand first")
    def shut_down_gracefully(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        self._shut_down(request, queryset, ShutdownOp.GRACEFUL)

    @admin.action(description="Shut down now: the task goes back to the queue")
    def shut_down_by_force(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        self._shut_down(request, queryset, ShutdownOp.FORCE)

    def _shut_down(self, request: HttpRequest, queryset: QuerySet[Worker], op: ShutdownOp) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            f"shutdown.{op.value.lower()}",
            lambda worker: shut_down(
                actor=actor, runner=worker.runner, op=op, take_back=_take_back
            ),
        )

    @admin.display(description="worker", ordering="runner__uuid")
    def uuid(self, worker: Worker) -> UUID:
        return worker.runner.uuid

    @admin.display(ordering="runner__kind")
    def kind(self, worker: Worker) -> str:
        return cast("RunnerKind", worker.runner.kind).value

    @admin.display(ordering="runner__owner__username")
    def owner(self, worker: Worker) -> str:
        return worker.runner.owner.username

    @admin.display(description="life")
    def life(self, worker: Worker) -> str:
        if worker.runner.revoked_at is not None:
            return "inactive"
        now = worker.now  # type: ignore[attr-defined]  # annotated above
        return "active" if worker.runner.lease.expires_at > now else "stale"

    @admin.display(ordering="runner__desired_state")
    def state(self, worker: Worker) -> str:
        return wire_state(worker.runner).value

    @admin.display(ordering="runner__lease__expires_at")
    def lease_until(self, worker: Worker) -> str:
        return format_rfc3339(worker.runner.lease.expires_at)

    @admin.display(description="last heartbeat")
    def last_beat(self, worker: Worker) -> str:
        return format_rfc3339(last_heartbeat(worker.runner, worker))

    @admin.display(description="task", empty_value="none")
    def held_task(self, worker: Worker) -> UUID | None:
        return cast("UUID | None", worker.held)  # type: ignore[attr-defined]  # annotated above

    def tags(self, worker: Worker) -> str:
        return ", ".join(worker.runner.tags)

    def labels(self, worker: Worker) -> str:
        return ", ".join(worker.runner.labels)


class StatusFilter(admin.SimpleListFilter):
    """The same words, asked of the view itself."""

    title = "status"
    parameter_name = "status"

    @override
    def lookups(
        self, request: HttpRequest, model_admin: "admin.ModelAdmin[Any]"
    ) -> Iterable[tuple[str, str]]:
        return [(word, word) for word in LIVES]

    @override
    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        return queryset if chosen is None else queryset.filter(status=chosen)


@admin.register(WorkerStatus)
class WorkerStatusAdmin(ReadOnlyAdmin):
    """The database view as it is: the same rows that `psql` shows."""

    list_display = (
        "worker_id",
        "status",
        "last_seen_at",
        "active_tasks",
        "minutes_since_heartbeat",
    )
    list_filter = (StatusFilter,)
    search_fields = ("=worker_id",)
    fields = list_display
    readonly_fields = fields


def _take_back(runner_id: int) -> Swept:
    batch = settings.MITOSIS.sweep_batch
    reason = "its worker was shut down by an operator"
    return reclaim_from_runners([runner_id], charge=False, max_tasks=batch, reason=reason)
