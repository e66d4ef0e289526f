"""What managers themselves call over HTTP: the heartbeat and new tokens."""

import uuid
from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.actors import Actor, identity_actor
from accounts.bodies import TextField, WholeNumberField, read_body
from accounts.schema import describe
from core.errors import AuthenticationFailed, NotFound
from managers.selectors import get_manager
from managers.services.heartbeat import Beat, record_beat
from managers.services.tokens import TokenPolicy, refresh_tokens, renew_access
from mitosis_protocol.enums import ManagerState
from mitosis_protocol.timestamps import format_rfc3339
from runners.authentication import (
    ManagerTokenAuthentication,
    RunnerRequired,
    current_identity,
)

# Offline is the coordinator's verdict, so a manager cannot say it.
SAYABLE = [state.value for state in ManagerState if state is not ManagerState.OFFLINE]


class ManagerHeartbeat(serializers.Serializer[Any]):
    state = serializers.ChoiceField(choices=SAYABLE)
    session_epoch = WholeNumberField(
        required=False,
        default=0,
        min_value=0,
        max_value=2**63 - 1,
        help_text="Of the manager's WebSocket session; 0 before the first one.",
    )
    assigned_suite_uuid = serializers.UUIDField(required=False, allow_null=True)
    config_version = WholeNumberField(
        required=False, allow_null=True, default=None, min_value=0, max_value=2**31 - 1
    )
    metrics = serializers.DictField(required=False, allow_null=True, default=None)


class ManagerRefresh(serializers.Serializer[Any]):
    refresh_token = TextField(required=False, allow_null=True, default=None, max_length=256)


class ManagerTokensAnswer(serializers.Serializer[Any]):
    token = serializers.CharField()
    token_expires_at = serializers.CharField()
    refresh_token = serializers.CharField(allow_null=True, help_text="Null: keep the one you have.")
    refresh_expires_at = serializers.CharField()


class HeartbeatView(APIView):
    authentication_classes = (ManagerTokenAuthentication,)
    permission_classes = (RunnerRequired,)

    @describe(
        summary="A manager is alive; renews the lease of its present session",
        request=ManagerHeartbeat,
        problems=(409,),
        status=204,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, ManagerHeartbeat)
        beat = Beat(
            manager_id=current_identity(request).id,
            session_epoch=body["session_epoch"],
            state=ManagerState.parse(body["state"]),
            metrics=body["metrics"],
            config_version=body["config_version"],
        )
        record_beat(beat, ttl_s=settings.MITOSIS.lease_ttl_s)
        return Response(status=204)


class RefreshTokenView(APIView):
    """By refresh token, which works when the access token has expired, or by a valid access token.

    Either way the answer has a new access token; a spent refresh token is replaced.
    """

    authentication_classes = ()
    permission_classes = ()

    @describe(
        summary="New tokens for a manager", request=ManagerRefresh, answer=ManagerTokensAnswer
    )
    def post(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        secret = read_body(request, ManagerRefresh)["refresh_token"]
        policy = settings.MITOSIS
        lifetimes = TokenPolicy(
            access_s=policy.manager_access_s, overlap_s=policy.refresh_overlap_s
        )
        if secret is None:
            principal, identity = ManagerTokenAuthentication().authenticate(request)
            if identity.subject != str(manager_uuid):
                raise AuthenticationFailed("Wrong credentials")
            tokens = renew_access(
                actor=identity_actor(principal.identity, request),
                runner=get_manager(manager_uuid),
                policy=lifetimes,
            )
        else:
            try:
                runner = get_manager(manager_uuid)
            except NotFound as error:
                # Whoever guesses must not learn which managers exist.
                raise AuthenticationFailed("Invalid refresh token") from error
            actor = Actor(
                kind="manager", id=str(manager_uuid), ip=request.META.get("REMOTE_ADDR") or None
            )
            tokens = refresh_tokens(
                actor=actor, runner=runner, refresh_token=secret, policy=lifetimes
            )
        return Response(
            {
                "token": tokens.token,
                "token_expires_at": format_rfc3339(tokens.expires_at),
                "refresh_token": tokens.refresh_token,
                "refresh_expires_at": format_rfc3339(tokens.refresh_expires_at),
            }
        )
