"""What an operator wants of a manager: shutdown, drain, quarantine, release, revocation."""

import uuid
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField, TextField, read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.views import UserView
from managers.selectors import access_manager
from managers.services import wishes
from mitosis_protocol.enums import DesiredState, Role, ShutdownOp
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from runners.models import Runner


class ManagerShutdown(serializers.Serializer[Any]):
    op = EnumField(ShutdownOp)


class ManagerShutdownAnswer(serializers.Serializer[Any]):
    state = serializers.CharField(help_text="`ShuttingDown`.")


class ManagerReason(serializers.Serializer[Any]):
    reason = TextField(required=False, default="", max_length=MAX_ERROR_MESSAGE_CHARS)


class ManagerWishAnswer(serializers.Serializer[Any]):
    desired_state = EnumField(DesiredState)


class ShutdownView(UserView):
    @describe(
        summary="Let a manager leave: after what runs (Graceful) or at once (Force)",
        request=ManagerShutdown,
        answer=ManagerShutdownAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = _administered(request, manager_uuid)
        op = read_body(request, ManagerShutdown)["op"]
        wishes.shut_down_manager(actor=current_actor(request), runner=runner, op=op)
        return Response({"state": "ShuttingDown"})


class DrainView(UserView):
    @describe(
        summary="No new tasks for a manager; what runs may end",
        request=ManagerReason,
        answer=ManagerWishAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = _administered(request, manager_uuid)
        reason = read_body(request, ManagerReason)["reason"]
        wishes.drain_manager(actor=current_actor(request), runner=runner, reason=reason)
        return _wished(DesiredState.DRAINING)


class UndrainView(UserView):
    @describe(
        summary="A drained manager works again", answer=ManagerWishAnswer, problems=(404, 409)
    )
    def post(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = _administered(request, manager_uuid)
        wishes.undrain_manager(actor=current_actor(request), runner=runner)
        return _wished(DesiredState.ACTIVE)


class QuarantineView(UserView):
    @describe(
        summary="Keep a manager from tasks until it is released",
        request=ManagerReason,
        answer=ManagerWishAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = _administered(request, manager_uuid)
        reason = read_body(request, ManagerReason)["reason"]
        wishes.quarantine_manager(
            actor=current_actor(request), runner=runner, reason=reason or "by an operator"
        )
        return _wished(DesiredState.QUARANTINED)


class ReleaseView(UserView):
    @describe(summary="End a manager's quarantine", answer=ManagerWishAnswer, problems=(404, 409))
    def post(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = _administered(request, manager_uuid)
        wishes.release_manager(actor=current_actor(request), runner=runner)
        return _wished(DesiredState.ACTIVE)


class RevokeView(UserView):
    @describe(
        summary="End a manager's registration, tokens and sessions for good",
        problems=(404,),
        status=204,
    )
    def post(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = _administered(request, manager_uuid)
        wishes.revoke_manager(actor=current_actor(request), runner=runner)
        return Response(status=204)


def _administered(request: Request, manager_uuid: uuid.UUID) -> Runner:
    return access_manager(current_user(request), manager_uuid, Role.ADMIN).runner


def _wished(state: DesiredState) -> Response:
    return Response({"desired_state": state.value})
