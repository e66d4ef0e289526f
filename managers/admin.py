"""The console's pages for managers: the fleet, eligibility, engagements, failed preparations.

Read-only where the system owns the value; every action calls the same service as the API. The
scheduler's numbers and the groups' shares are edited here.
"""

from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from typing_extensions import override

from accounts.admin import operator
from core.admin import AuditedAction, ReadOnlyAdmin
from core.errors import DomainError
from managers.models import (
    GroupShare,
    NodeManager,
    PreparationFailure,
    SchedulerConfig,
    SuiteAssignment,
    SuiteManager,
)
from managers.services import wishes
from managers.services.config import CHANGEABLE, change_config
from mitosis_protocol.enums import ShutdownOp


@admin.register(NodeManager)
class NodeManagerAdmin(AuditedAction, ReadOnlyAdmin):
    list_display = (
        "uuid",
        "owner",
        "state",
        "wish",
        "connection",
        "last_heartbeat",
        "tags",
        "wish_reason",
    )
    list_select_related = ("runner", "runner__owner")
    list_filter = ("state", "runner__desired_state", "runner__conn_state")
    search_fields = ("=runner__uuid", "=runner__owner__username")
    exclude = ("refresh_hash", "refresh_previous_hash", "refresh_family_hash")
    actions = ("drain", "undrain", "quarantine", "release", "shut_down", "revoke")

    @override
    def audit_targets(self, obj: Any) -> list[str]:
        return [str(obj.runner.uuid), *super().audit_targets(obj)]

    @override
    def view_on_site(self, obj: Any) -> str:
        """The live page."""
        return reverse("console-manager", args=[obj.runner.uuid])

    @admin.display(description="uuid")
    def uuid(self, node: NodeManager) -> str:
        return str(node.runner.uuid)

    @admin.display(description="owner")
    def owner(self, node: NodeManager) -> str:
        return str(node.runner.owner.username)

    @admin.display(description="wanted")
    def wish(self, node: NodeManager) -> str:
        return str(node.runner.desired_state)

    @admin.display(description="connection")
    def connection(self, node: NodeManager) -> str:
        return str(node.runner.conn_state)

    @admin.display(description="tags")
    def tags(self, node: NodeManager) -> str:
        return ", ".join(node.runner.tags)

    @admin.action(description="Drain: no new tasks, what runs may end")
    def drain(self, request: HttpRequest, queryset: QuerySet[NodeManager]) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            "drain",
            lambda node: wishes.drain_manager(
                actor=actor, runner=node.runner, reason="by an operator"
            ),
        )

    @admin.action(description="Undrain: work again")
    def undrain(self, request: HttpRequest, queryset: QuerySet[NodeManager]) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            "undrain",
            lambda node: wishes.undrain_manager(actor=actor, runner=node.runner),
        )

    @admin.action(description="Quarantine: no tasks until released")
    def quarantine(self, request: HttpRequest, queryset: QuerySet[NodeManager]) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            "quarantine",
            lambda node: wishes.quarantine_manager(
                actor=actor, runner=node.runner, reason="by an operator"
            ),
        )

    @admin.action(description="Release from quarantine")
    def release(self, request: HttpRequest, queryset: QuerySet[NodeManager]) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            "release",
            lambda node: wishes.release_manager(actor=actor, runner=node.runner),
        )

    @admin.action(description="Shut down gracefully")
    def shut_down(self, request: HttpRequest, queryset: QuerySet[NodeManager]) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            "shutdown",
            lambda node: wishes.shut_down_manager(
                actor=actor, runner=node.runner, op=ShutdownOp.GRACEFUL
            ),
        )

    @admin.action(description="Revoke: end tokens, sessions and engagements for good")
    def revoke(self, request: HttpRequest, queryset: QuerySet[NodeManager]) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            "revoke",
            lambda node: wishes.revoke_manager(actor=actor, runner=node.runner),
        )


@admin.register(SuiteManager)
class SuiteManagerAdmin(ReadOnlyAdmin):
    list_display = ("suite", "manager", "selection_type", "matched_tags", "added_at", "removed_at")
    list_select_related = ("suite", "manager")
    list_filter = ("selection_type",)
    search_fields = ("=suite__uuid", "=manager__runner__uuid")


@admin.register(SuiteAssignment)
class SuiteAssignmentAdmin(ReadOnlyAdmin):
    list_display = (
        "id",
        "suite",
        "manager",
        "state",
        "created_at",
        "lease_expires_at",
        "renewals",
        "idle_since",
        "release_reason",
        "released_at",
    )
    list_select_related = ("suite", "manager")
    list_filter = ("state", "release_reason")
    search_fields = ("=suite__uuid", "=manager__runner__uuid")


@admin.register(PreparationFailure)
class PreparationFailureAdmin(ReadOnlyAdmin):
    list_display = ("suite", "manager", "trouble", "exit_code", "failed_at", "forgiven_at")
    list_select_related = ("suite", "manager")
    list_filter = ("trouble",)
    search_fields = ("=suite__uuid", "=manager__runner__uuid")


@admin.register(SchedulerConfig)
class SchedulerConfigAdmin(ReadOnlyAdmin):
    """The one row; saving it goes through the service, which checks and counts the version."""

    list_display = ("version", *CHANGEABLE, "updated_at")
    fields = ("version", *CHANGEABLE)
    readonly_fields = ("version",)

    @override
    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.is_active and request.user.is_staff)

    @override
    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        changes = {name: form.cleaned_data[name] for name in form.changed_data}
        if not changes:
            return
        try:
            change_config(
                actor=operator(request), changes=changes, lease_ttl_s=settings.MITOSIS.lease_ttl_s
            )
        except DomainError as error:
            self.message_user(request, error.message, messages.ERROR)


@admin.register(GroupShare)
class GroupShareAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # no arguments at run time
    """Weights between groups; a group without a row has 1."""

    list_display = ("group", "weight")
    list_select_related = ("group",)
    autocomplete_fields = ("group",)
    search_fields = ("=group__name",)
