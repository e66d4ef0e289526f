"""Logging in, who am I, own password, own groups."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from typing_extensions import override

from accounts.actors import anonymous_actor
from accounts.bodies import EnumField, FlagField, Md5Field, TextField, read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.selectors import list_roles_of_user
from accounts.services.sessions import Credentials, change_password, login
from accounts.throttle import login_throttle
from accounts.views import UserView
from core.drf import CompactJSONRenderer
from core.errors import AuthenticationFailed
from mitosis_protocol.enums import Role
from mitosis_protocol.errors import ErrorCode


class LoginRequest(serializers.Serializer[Any]):
    username = TextField()
    md5_password = Md5Field()
    retain = FlagField(required=False, default=False)


class TokenAnswer(serializers.Serializer[Any]):
    token = serializers.CharField()


class ChangePasswordRequest(serializers.Serializer[Any]):
    old_md5_password = Md5Field()
    new_md5_password = Md5Field()


class UserGroupsAnswer(serializers.Serializer[Any]):
    groups = serializers.DictField(child=EnumField(Role))


class RedisAnswer(serializers.Serializer[Any]):
    url = serializers.CharField(allow_null=True)


class PlainTextRenderer(BaseRenderer):
    """Lets a caller that accepts only text in; errors are JSON text all the same."""

    media_type = "text/plain"
    format = "txt"

    @override
    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        rendered: bytes = JSONRenderer().render(data)
        return rendered


class LoginView(APIView):
    authentication_classes = ()
    permission_classes = ()

    @describe(
        summary="Log in; without `retain`, all earlier tokens of the user end",
        request=LoginRequest,
        answer=TokenAnswer,
        problems=(429,),
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, LoginRequest)
        token = login(
            actor=anonymous_actor(request),
            credentials=Credentials(body["username"], body["md5_password"]),
            retain=body["retain"],
            throttle=login_throttle(),
        )
        return Response({"token": token})


class AuthView(UserView):
    renderer_classes = (CompactJSONRenderer, PlainTextRenderer)

    @describe(summary="The caller's user name, as plain text", answer=OpenApiTypes.STR)
    def get(self, request: Request) -> HttpResponse:
        return HttpResponse(current_user(request).username, content_type="text/plain")


class RedisView(UserView):
    @describe(summary="Always null: task states are read through this API", answer=RedisAnswer)
    def get(self, request: Request) -> Response:
        # Shared Redis credentials would let any client forge any group's task states.
        return Response({"url": None})


class UserPasswordView(UserView):
    @describe(
        summary="Change one's own password; all earlier tokens end",
        request=ChangePasswordRequest,
        answer=TokenAnswer,
        problems=(429,),
    )
    def post(self, request: Request, username: str) -> Response:
        body = read_body(request, ChangePasswordRequest)
        if username != current_user(request).username:
            code = ErrorCode.AUTH_WRONG_CREDENTIALS
            raise AuthenticationFailed("Wrong credentials", code=code)
        token = change_password(
            actor=current_actor(request),
            credentials=Credentials(username, body["old_md5_password"]),
            new_md5_password=body["new_md5_password"],
            throttle=login_throttle(),
        )
        return Response({"token": token})


class UserGroupsView(UserView):
    @describe(summary="The caller's groups and the role in each", answer=UserGroupsAnswer)
    def get(self, request: Request) -> Response:
        roles = list_roles_of_user(current_user(request).pk)
        return Response({"groups": {name: role.value for name, role in roles.items()}})
