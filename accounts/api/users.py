"""Users, quotas and the coordinator itself, for admins."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from accounts.bodies import (
    EnumField,
    FlagField,
    Md5Field,
    TextField,
    WholeNumberField,
    read_body,
)
from accounts.guards import current_actor
from accounts.schema import describe
from accounts.services import groups, shutdown, storage, users
from accounts.views import AdminView
from core.errors import InvalidInput
from mitosis_protocol.enums import UserState
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.sizes import QuotaChange, parse_count_change, parse_size_change


class CreateUserRequest(serializers.Serializer[Any]):
    username = TextField()
    md5_password = Md5Field()
    admin = FlagField()


class SetPasswordRequest(serializers.Serializer[Any]):
    new_md5_password = Md5Field()


class UserStateBody(serializers.Serializer[Any]):
    state = EnumField(UserState)


class GroupQuotaRequest(serializers.Serializer[Any]):
    group_quota = TextField(help_text="`+n`, `-n`, `=n` or `n`; the result is never below 0.")


class GroupQuotaAnswer(serializers.Serializer[Any]):
    group_quota = serializers.IntegerField()


class StorageQuotaRequest(serializers.Serializer[Any]):
    storage_quota = TextField(help_text="A size like `10GB`, with an optional `+`, `-` or `=`.")


class StorageQuotaAnswer(serializers.Serializer[Any]):
    storage_quota = serializers.IntegerField(help_text="Bytes.")


class PriorityCeilingBody(serializers.Serializer[Any]):
    priority_ceiling = WholeNumberField(
        min_value=-(2**31),
        max_value=2**31 - 1,
        allow_null=True,
        help_text="The highest priority of the group's tasks and suites; null for no ceiling.",
    )


class ShutdownRequest(serializers.Serializer[Any]):
    secret = TextField()


class AdminUsersView(AdminView):
    @describe(
        summary="Create a user with a group of its own", request=CreateUserRequest, problems=(409,)
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, CreateUserRequest)
        users.create_user(
            actor=current_actor(request),
            username=body["username"],
            md5_password=body["md5_password"],
            is_admin=body["admin"],
        )
        return Response()


class AdminUserView(AdminView):
    @describe(
        summary="Mark a user deleted; the name stays taken", answer=UserStateBody, problems=(404,)
    )
    def delete(self, request: Request, username: str) -> Response:
        actor = current_actor(request)
        user = users.set_user_state(actor=actor, username=username, state=UserState.DELETED)
        return Response({"state": user.state.value})


class AdminUserStateView(AdminView):
    @describe(
        summary="Activate, lock or delete a user",
        request=UserStateBody,
        answer=UserStateBody,
        problems=(404,),
    )
    def post(self, request: Request, username: str) -> Response:
        body = read_body(request, UserStateBody)
        actor = current_actor(request)
        user = users.set_user_state(actor=actor, username=username, state=body["state"])
        return Response({"state": user.state.value})


class SetPasswordView(AdminView):
    @describe(
        summary="Set a user's password; all of the user's sessions end",
        request=SetPasswordRequest,
        problems=(404,),
    )
    def post(self, request: Request, username: str) -> Response:
        body = read_body(request, SetPasswordRequest)
        users.set_password(
            actor=current_actor(request), username=username, md5_password=body["new_md5_password"]
        )
        return Response()


class GroupQuotaView(AdminView):
    @describe(
        summary="Change how many groups a user may create",
        request=GroupQuotaRequest,
        answer=GroupQuotaAnswer,
        problems=(404,),
    )
    def post(self, request: Request, username: str) -> Response:
        text = read_body(request, GroupQuotaRequest)["group_quota"]
        quota = users.change_group_quota(
            actor=current_actor(request), username=username, change=_count_change(text)
        )
        return Response({"group_quota": quota})


class StorageQuotaView(AdminView):
    @describe(
        summary="Change how many bytes a group may store",
        request=StorageQuotaRequest,
        answer=StorageQuotaAnswer,
        problems=(404,),
    )
    def post(self, request: Request, group: str) -> Response:
        text = read_body(request, StorageQuotaRequest)["storage_quota"]
        quota = storage.change_storage_quota(
            actor=current_actor(request), group_name=group, change=_size_change(text)
        )
        return Response({"storage_quota": quota})


class PriorityCeilingView(AdminView):
    @describe(
        summary="Limit how urgent the tasks and suites of a group may be",
        request=PriorityCeilingBody,
        answer=PriorityCeilingBody,
        problems=(404,),
    )
    def post(self, request: Request, group: str) -> Response:
        ceiling = read_body(request, PriorityCeilingBody)["priority_ceiling"]
        groups.set_priority_ceiling(actor=current_actor(request), group_name=group, ceiling=ceiling)
        return Response({"priority_ceiling": ceiling})


class ShutdownView(AdminView):
    @describe(summary="Stop this coordinator process gracefully", request=ShutdownRequest)
    def post(self, request: Request) -> Response:
        secret = read_body(request, ShutdownRequest)["secret"]
        shutdown.permit_shutdown(actor=current_actor(request), secret=secret)
        return _StoppingResponse()


class _StoppingResponse(Response):
    """Stops the server when it is closed, which is after its last byte was handed over."""

    @override
    def close(self) -> None:
        super().close()
        shutdown.stop_this_process()


def _count_change(text: str) -> QuotaChange:
    try:
        return parse_count_change(text)
    except InvalidValue as error:
        raise InvalidInput(f"group_quota: {error}") from error


def _size_change(text: str) -> QuotaChange:
    try:
        return parse_size_change(text)
    except InvalidValue as error:
        raise InvalidInput(f"storage_quota: {error}") from error
