"""The console's page for runners: what they are, whom they serve, and the end of one."""

from typing import TYPE_CHECKING

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from typing_extensions import override

from accounts.actors import user_actor
from accounts.models import User
from core.admin import AuditedAction, ReadOnlyAdmin
from runners.models import GroupRunner, Runner
from runners.services.registration import revoke_runner

if TYPE_CHECKING:
    _Inline = admin.TabularInline[GroupRunner, Runner]
else:
    # Django's own classes take no type arguments at run time.
    _Inline = admin.TabularInline


class GroupRunnerInline(_Inline):
    model = GroupRunner
    fields = ("group", "role", "consent", "decided_by", "decided_at")
    readonly_fields = fields
    extra = 0
    can_delete = False

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[GroupRunner]:
        return super().get_queryset(request).select_related("group", "decided_by")

    @override
    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Runner)
class RunnerAdmin(AuditedAction, ReadOnlyAdmin):
    list_display = ("uuid", "kind", "owner", "conn_state", "desired_state", "tags", "revoked_at")
    list_select_related = ("owner",)
    list_filter = ("kind", "conn_state", "desired_state")
    search_fields = ("=uuid", "=owner__username")
    inlines = (GroupRunnerInline,)
    actions = ("revoke",)

    @admin.action(description="Revoke: end tokens and sessions for good")
    def revoke(self, request: HttpRequest, queryset: QuerySet[Runner]) -> None:
        if not isinstance(request.user, User):
            raise TypeError("the console is for users")
        actor = user_actor(request.user, request)
        self.run_action(
            request,
            queryset,
            "revoke",
            lambda runner: revoke_runner(actor=actor, runner=runner),
        )
