"""Groups and their members, for users."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField, TextField, WholeNumberField, read_body
from accounts.guards import current_actor, current_user
from accounts.models import Group
from accounts.schema import describe
from accounts.selectors import GroupAccess, access_group, list_members
from accounts.services.groups import (
    create_group,
    put_members,
    remove_members,
    set_drain_limits,
)
from accounts.views import UserView
from core.errors import InvalidInput
from mitosis_protocol.enums import GroupState, Role
from mitosis_protocol.limits import MAX_LIST_ITEMS
from mitosis_protocol.timestamps import format_legacy
from runners.selectors import count_workers


class CreateGroupRequest(serializers.Serializer[Any]):
    group_name = TextField()


class DrainLimits(serializers.Serializer[Any]):
    mem_pct = WholeNumberField(
        min_value=1, max_value=100, allow_null=True, help_text="null: the installation's, 90."
    )
    disk_pct = WholeNumberField(
        min_value=1, max_value=100, allow_null=True, help_text="null: the installation's, 95."
    )


class GroupAnswer(serializers.Serializer[Any]):
    group_name = serializers.CharField()
    creator_username = serializers.CharField()
    created_at = serializers.CharField(help_text="Like `2025-11-11 03:07:09.0 +00:00:00`.")
    updated_at = serializers.CharField()
    state = EnumField(GroupState)
    task_count = serializers.IntegerField()
    storage_quota = serializers.IntegerField(help_text="Bytes.")
    storage_used = serializers.IntegerField(help_text="Bytes.")
    priority_ceiling = serializers.IntegerField(
        allow_null=True, help_text="The highest priority a task or suite may have; null for any."
    )
    drain_limits = DrainLimits()
    worker_count = serializers.IntegerField()
    users_in_group = serializers.DictField(
        child=EnumField(Role), allow_null=True, help_text="For Admins; null for others."
    )


class PutMembersRequest(serializers.Serializer[Any]):
    relations = serializers.DictField(child=EnumField(Role))


class RemoveMembersRequest(serializers.Serializer[Any]):
    users = serializers.ListField(child=TextField(), max_length=MAX_LIST_ITEMS)


class GroupsView(UserView):
    @describe(
        summary="Create a group; the caller becomes Admin",
        request=CreateGroupRequest,
        problems=(409,),
    )
    def post(self, request: Request) -> Response:
        name = read_body(request, CreateGroupRequest)["group_name"]
        create_group(actor=current_actor(request), creator=current_user(request), name=name)
        return Response()


class GroupView(UserView):
    @describe(summary="A group the caller belongs to", answer=GroupAnswer, problems=(404,))
    def get(self, request: Request, group: str) -> Response:
        return Response(_group_answer(access_group(current_user(request), group, Role.READ)))


class DrainLimitsView(UserView):
    @describe(
        summary="How full the group's direct workers may be before they get no more work",
        request=DrainLimits,
        answer=DrainLimits,
        problems=(404,),
    )
    def put(self, request: Request, group: str) -> Response:
        owned = _administered(request, group)
        limits = read_body(request, DrainLimits)
        set_drain_limits(actor=current_actor(request), group=owned, **limits)
        return Response(limits)


class GroupUsersView(UserView):
    @describe(summary="Give users a role in the group", request=PutMembersRequest, problems=(404,))
    def put(self, request: Request, group: str) -> Response:
        owned = _administered(request, group)
        roles = read_body(request, PutMembersRequest)["relations"]
        put_members(actor=current_actor(request), group=owned, roles=roles)
        return Response()

    @describe(
        summary="Remove users from the group",
        problems=(404,),
        parameters=[
            OpenApiParameter("users", OpenApiTypes.STR, required=True, many=True, explode=True)
        ],
    )
    def delete(self, request: Request, group: str) -> Response:
        owned = _administered(request, group)
        names = request.query_params.getlist("users")
        _remove(request, owned, names)
        return Response()


class GroupUsersRemoveView(UserView):
    @describe(
        summary="Remove users from the group, named in the body",
        request=RemoveMembersRequest,
        problems=(404,),
    )
    def post(self, request: Request, group: str) -> Response:
        owned = _administered(request, group)
        names = read_body(request, RemoveMembersRequest)["users"]
        _remove(request, owned, names)
        return Response()


def _administered(request: Request, name: str) -> Group:
    return access_group(current_user(request), name, Role.ADMIN).group


def _remove(request: Request, group: Group, names: list[str]) -> None:
    if len(names) > MAX_LIST_ITEMS:
        raise InvalidInput(f"users: at most {MAX_LIST_ITEMS} names")
    remove_members(actor=current_actor(request), group=group, usernames=names)


def _group_answer(access: GroupAccess) -> dict[str, object]:
    group = access.group
    members = None
    if access.role is Role.ADMIN:
        members = {name: role.value for name, role in list_members(group.pk).items()}
    return {
        "group_name": group.name,
        "creator_username": group.creator.username,
        "created_at": format_legacy(group.created_at),
        "updated_at": format_legacy(group.updated_at),
        "state": group.state.value,
        "task_count": group.task_count,
        "storage_quota": group.storage_quota,
        "storage_used": group.storage_used,
        "priority_ceiling": group.priority_ceiling,
        "drain_limits": {"mem_pct": group.drain_mem_pct, "disk_pct": group.drain_disk_pct},
        "worker_count": count_workers(group.pk),
        "users_in_group": members,
    }
