"""Shutting workers down: one, a filter's worth, a list; and any of them for admins."""

from dataclasses import replace
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.actors import Actor
from accounts.bodies import EnumField, read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.views import AdminView, UserView
from core.errors import InvalidInput, NotFound, PermissionDenied
from mitosis_protocol.enums import Role, ShutdownOp
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_LIST_ITEMS
from runners.models import Runner
from workers.api.bodies import WORKER_UUID, WorkerFilterBody, read_uuid
from workers.api.leaving import take_back
from workers.api.registration import WorkerView, member_group, worker_filter
from workers.selectors import access_worker, get_worker, list_group_workers
from workers.services.departure import shut_down

OP: Final = OpenApiParameter(
    "op",
    OpenApiTypes.STR,
    enum=[op.value for op in ShutdownOp],
    description="Graceful (the default) lets it finish its task, Force takes the task back.",
)


class WorkerShutdown(WorkerFilterBody):
    op = EnumField(ShutdownOp)


class WorkerShutdownAnswer(serializers.Serializer[Any]):
    shutdown_count = serializers.IntegerField()
    group_name = serializers.CharField()


class WorkerShutdownList(serializers.Serializer[Any]):
    uuids = serializers.ListField(child=serializers.UUIDField(), max_length=MAX_LIST_ITEMS)
    op = EnumField(ShutdownOp)


class WorkerShutdownListAnswer(serializers.Serializer[Any]):
    shutdown_count = serializers.IntegerField()
    failed_uuids = serializers.ListField(child=serializers.UUIDField())


class OneWorkerView(WorkerView):
    """A worker to look at, and to shut down."""

    @describe(
        summary="Shut a worker down",
        problems=(404,),
        parameters=[WORKER_UUID, OP],
    )
    def delete(self, request: Request, worker_uuid: str) -> Response:
        runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.ADMIN)
        _shut_down(current_actor(request), runner, _op(request))
        return Response()


class ShutdownByFilterView(UserView):
    """The group has to be Admin of the workers, and the caller Admin of the group."""

    @describe(
        summary="Shut down those workers of a group on which the group is Admin",
        request=WorkerShutdown,
        answer=WorkerShutdownAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, WorkerShutdown)
        wanted = worker_filter(body)
        group = member_group(request, body.get("group_name"), Role.ADMIN)
        roles = {Role.ADMIN} & set(wanted.roles or Role)
        actor = current_actor(request)
        runners = list(list_group_workers(group, replace(wanted, roles=roles)))
        for runner in runners:
            _shut_down(actor, runner, body["op"])
        return Response({"shutdown_count": len(runners), "group_name": group.name})


class ShutdownByListView(UserView):
    @describe(
        summary="Shut down the workers of a list; answers those that were not",
        request=WorkerShutdownList,
        answer=WorkerShutdownListAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, WorkerShutdownList)
        uuids = list(dict.fromkeys(body["uuids"]))
        if not uuids:
            raise InvalidInput("UUIDs cannot be empty")
        user, actor = current_user(request), current_actor(request)
        failed: list[str] = []
        for uuid in uuids:
            try:
                runner = access_worker(user, uuid, Role.ADMIN)
                _shut_down(actor, runner, body["op"])
            except (NotFound, PermissionDenied):
                failed.append(str(uuid))
        return Response({"shutdown_count": len(uuids) - len(failed), "failed_uuids": failed})


class AdminWorkerView(AdminView):
    @describe(
        summary="Shut any worker down",
        problems=(404,),
        parameters=[WORKER_UUID, OP],
    )
    def delete(self, request: Request, worker_uuid: str) -> Response:
        runner = get_worker(read_uuid(worker_uuid))
        _shut_down(current_actor(request), runner, _op(request))
        return Response()


def _shut_down(actor: Actor, runner: Runner, op: ShutdownOp) -> None:
    shut_down(actor=actor, runner=runner, op=op, take_back=take_back("its worker was shut down"))


def _op(request: Request) -> ShutdownOp:
    text = request.query_params.get("op")
    try:
        return ShutdownOp.GRACEFUL if text is None else ShutdownOp.parse(text)
    except InvalidValue as error:
        raise InvalidInput(f"op: {error}") from error
