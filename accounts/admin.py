"""The console's pages for users, groups and the audit log. Every change calls a service."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin
from django.db import models
from django.db.models import QuerySet
from django.forms import BaseInlineFormSet, ModelForm
from django.http import HttpRequest
from typing_extensions import override

from accounts.actors import Actor, user_actor
from accounts.forms import AddGroupForm, AddUserForm, ChangeUserForm
from accounts.models import AuditEntry, Group, Membership, User
from accounts.password import md5_of
from accounts.services import groups, storage, users
from accounts.services.audit import record
from core.admin import (
    AuditedAction,
    BoundedPaginator,
    ReadOnlyAdmin,
    register_audit_reader,
    register_audit_writer,
)
from mitosis_protocol.enums import UserState
from mitosis_protocol.sizes import QuotaChange

if TYPE_CHECKING:
    _Inline = admin.TabularInline[Membership, Group]
else:
    # Django's own classes take no type arguments at run time.
    _Inline = admin.TabularInline


def operator(request: HttpRequest) -> Actor:
    """The admin behind a console request."""
    if not isinstance(request.user, User):
        raise TypeError("the console is for users")
    return user_actor(request.user, request)


def write_console_action(
    request: HttpRequest, *, action: str, target: models.Model, outcome: str
) -> None:
    """What core.admin calls for every row an action touched."""
    name = f"{target._meta.model_name} {target}"  # noqa: SLF001 - Django's documented model API
    record(actor=operator(request), action=f"console.{action}", target=name, outcome=outcome)


def read_history(targets: Sequence[str], *, at_most: int) -> list[AuditEntry]:
    """What core.admin shows as an object's history: by (object, id), which is an index."""
    rows = AuditEntry.objects.filter(object__in=targets)
    return list(rows.order_by("-pk")[:at_most])


register_audit_writer(write_console_action)
register_audit_reader(read_history)


@admin.register(User)
class UserAdmin(AuditedAction):
    list_display = ("username", "state", "is_staff", "group_count", "group_quota", "last_login")
    list_filter = ("state", "is_staff")
    search_fields = ("username",)
    ordering = ("username",)
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 100
    readonly_fields = ("state", "group_count", "last_login", "created_at", "updated_at")
    actions = ("activate", "lock", "mark_deleted", "end_sessions")

    @override
    def get_form(
        self, request: HttpRequest, obj: User | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        kwargs["form"] = AddUserForm if obj is None else ChangeUserForm
        return super().get_form(request, obj, change, **kwargs)

    @override
    def get_fields(self, request: HttpRequest, obj: User | None = None) -> tuple[str, ...]:
        if obj is None:
            return ("username", "new_password", "is_staff")
        return ("is_staff", "group_quota", "new_password", *self.readonly_fields)

    @override
    def save_model(
        self, request: HttpRequest, obj: User, form: "ModelForm[User]", change: bool
    ) -> None:
        actor, password = operator(request), form.cleaned_data["new_password"]
        if not change:
            created = users.create_user(
                actor=actor,
                username=obj.username,
                md5_password=md5_of(password),
                is_admin=obj.is_staff,
            )
            obj.pk = created.pk
            return
        if "is_staff" in form.changed_data:
            users.set_admin(actor=actor, username=obj.username, is_admin=obj.is_staff)
        if "group_quota" in form.changed_data:
            quota = QuotaChange("=", obj.group_quota)
            users.change_group_quota(actor=actor, username=obj.username, change=quota)
        if password:
            users.set_password(actor=actor, username=obj.username, md5_password=md5_of(password))

    @override
    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        return False

    @admin.action(description="Activate")
    def activate(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        self._set_state(request, queryset, UserState.ACTIVE)

    @admin.action(description="Lock")
    def lock(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        self._set_state(request, queryset, UserState.LOCKED)

    @admin.action(description="Mark as deleted")
    def mark_deleted(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        self._set_state(request, queryset, UserState.DELETED)

    @admin.action(description="End all API sessions")
    def end_sessions(self, request: HttpRequest, queryset: QuerySet[User]) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            "end_sessions",
            lambda user: users.end_sessions(actor=actor, username=user.username),
        )

    def _set_state(self, request: HttpRequest, queryset: QuerySet[User], state: UserState) -> None:
        actor = operator(request)
        self.run_action(
            request,
            queryset,
            f"user_state_{state.value.lower()}",
            lambda user: users.set_user_state(actor=actor, username=user.username, state=state),
        )


class MembershipInline(_Inline):
    model = Membership
    extra = 0
    autocomplete_fields = ("user",)
    fields = ("user", "role")

    @override
    def get_queryset(self, request: HttpRequest) -> QuerySet[Membership]:
        return super().get_queryset(request).select_related("user")


@admin.register(Group)
class GroupAdmin(AuditedAction):
    list_display = ("name", "creator", "state", "task_count", "storage_used", "storage_quota")
    list_select_related = ("creator",)
    list_filter = ("state",)
    search_fields = ("name",)
    ordering = ("name",)
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 100
    readonly_fields = ("creator", "task_count", "storage_used", "created_at", "updated_at")
    inlines: ClassVar = [MembershipInline]

    @override
    def get_form(
        self, request: HttpRequest, obj: Group | None = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is None:
            kwargs["form"] = AddGroupForm
        return super().get_form(request, obj, change, **kwargs)

    @override
    def get_fields(self, request: HttpRequest, obj: Group | None = None) -> tuple[str, ...]:
        if obj is None:
            return ("name",)
        limits = ("drain_mem_pct", "drain_disk_pct")
        return ("state", "storage_quota", "priority_ceiling", *limits, *self.readonly_fields)

    @override
    def get_inlines(self, request: HttpRequest, obj: Group | None) -> list[Any]:
        return [] if obj is None else [MembershipInline]

    @override
    def save_model(
        self, request: HttpRequest, obj: Group, form: "ModelForm[Group]", change: bool
    ) -> None:
        actor = operator(request)
        if not change:
            created = groups.create_group(actor=actor, creator=_user(request), name=obj.name)
            obj.pk = created.pk
            return
        if "state" in form.changed_data:
            groups.set_group_state(actor=actor, group=obj, state=obj.state)
        if "storage_quota" in form.changed_data:
            quota = QuotaChange("=", obj.storage_quota)
            storage.change_storage_quota(actor=actor, group_name=obj.name, change=quota)
        if "priority_ceiling" in form.changed_data:
            groups.set_priority_ceiling(
                actor=actor, group_name=obj.name, ceiling=obj.priority_ceiling
            )
        if {"drain_mem_pct", "drain_disk_pct"} & set(form.changed_data):
            groups.set_drain_limits(
                actor=actor, group=obj, mem_pct=obj.drain_mem_pct, disk_pct=obj.drain_disk_pct
            )

    @override
    def save_formset(
        self,
        request: HttpRequest,
        form: Any,
        formset: "BaseInlineFormSet[Membership, Group, ModelForm[Membership]]",
        change: bool,
    ) -> None:
        formset.save(commit=False)
        actor, group = operator(request), formset.instance
        gone = {row.user.username for row in formset.deleted_objects}
        gone |= _replaced_users(formset)
        if gone:
            groups.remove_members(actor=actor, group=group, usernames=gone)
        kept = [*formset.new_objects, *(row for row, _ in formset.changed_objects)]
        roles = {row.user.username: row.role for row in kept}
        if roles:
            groups.put_members(actor=actor, group=group, roles=roles)

    @override
    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        return False


def _replaced_users(formset: "BaseInlineFormSet[Membership, Group, Any]") -> set[str]:
    """Users whose row now names somebody else: they lose their membership."""
    replaced = [row.pk for row, changed in formset.changed_objects if "user" in changed]
    before = Membership.objects.filter(pk__in=replaced)
    return set(before.values_list("user__username", flat=True))


def _user(request: HttpRequest) -> User:
    if not isinstance(request.user, User):
        raise TypeError("the console is for users")
    return request.user


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnlyAdmin):
    list_display = ("at", "actor_kind", "actor_id", "action", "object", "outcome", "ip")
    # Exact matches on indexed columns; the log is the one table that never shrinks.
    search_fields = ("=object", "=actor_id", "=request_id")
