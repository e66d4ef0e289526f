"""What users do with direct workers: packages, resources, another token.

Packages are attachments of the worker's group with a checksum; whether one is taken is decided by
the worker (`--allow-packages`), and every step is in the audit log.
"""

from typing import Any
from uuid import uuid4

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import TextField, read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.tokens import wrap
from accounts.views import UserView
from core.errors import Conflict, InvalidInput
from mitosis_protocol.enums import ConnState, Role, RunnerKind
from mitosis_protocol.errors import ErrorCode
from runners.models import Runner
from runners.services.registration import issue_runner_token, rotate_token_generation
from tasks.selectors_uploads import get_attachment
from tasks.services.attachments import attachment_download
from workers.api.bodies import WORKER_UUID, read_uuid
from workers.api.registration import token_lifetime_s
from workers.models import Worker
from workers.selectors import access_worker
from workers.selectors_resources import list_resources
from workers.services.attributes import release_from_quarantine
from workers.services.packages import order_install, order_uninstall

VERSION = OpenApiParameter(
    "version", OpenApiTypes.STR, description="Needed where the worker has several."
)
PACKAGE = OpenApiParameter("name", OpenApiTypes.STR, OpenApiParameter.PATH)


class PackageOrder(serializers.Serializer[Any]):
    name = TextField(help_text="Letters, digits, dots, dashes and underscores.")
    version = TextField()
    attachment_key = TextField(help_text="Of the worker's group; uploaded with its sha256.")


class PackageOrderAnswer(serializers.Serializer[Any]):
    op_id = serializers.UUIDField(help_text="Named by the worker's events in the audit log.")


class PackageInfo(serializers.Serializer[Any]):
    name = serializers.CharField()
    version = serializers.CharField()
    sha256 = serializers.CharField(allow_null=True)


class PackagesAnswer(serializers.Serializer[Any]):
    packages = PackageInfo(many=True)


class ResourceInfo(serializers.Serializer[Any]):
    resource_id = serializers.CharField()
    worker_id = serializers.UUIDField()
    type = serializers.CharField()
    scope = serializers.CharField(allow_null=True)
    size_bytes = serializers.IntegerField(allow_null=True)
    expires_at = serializers.DateTimeField(allow_null=True)
    metadata = serializers.DictField()
    task_uuid = serializers.UUIDField(allow_null=True, help_text="Whose result left it.")


class ResourcesAnswer(serializers.Serializer[Any]):
    resources = ResourceInfo(many=True)


class NewToken(serializers.Serializer[Any]):
    lifetime = TextField(
        required=False, allow_null=True, help_text="Of the token, like `7d`; at most 30 days."
    )


class NewTokenAnswer(serializers.Serializer[Any]):
    token = serializers.CharField()


class TokenView(UserView):
    @describe(
        summary="A new token; the old ones and a session with one of them end within 5 s",
        request=NewToken,
        answer=NewTokenAnswer,
        problems=(404,),
        parameters=[WORKER_UUID],
    )
    def post(self, request: Request, worker_uuid: str) -> Response:
        runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.ADMIN)
        lifetime_s = token_lifetime_s(read_body(request, NewToken).get("lifetime"))
        rotated = rotate_token_generation(actor=current_actor(request), runner=runner)
        release_from_quarantine(runner)
        return Response({"token": wrap(issue_runner_token(rotated, lifetime_s=lifetime_s))})


class ResourcesView(UserView):
    @describe(
        summary="What lives on a direct worker now",
        answer=ResourcesAnswer,
        problems=(404,),
        parameters=[WORKER_UUID],
    )
    def get(self, request: Request, worker_uuid: str) -> Response:
        runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.READ)
        found = [
            {
                "resource_id": row.resource_id,
                "worker_id": str(runner.uuid),
                "type": row.type,
                "scope": row.scope,
                "size_bytes": row.size_bytes,
                "expires_at": row.expires_at,
                "metadata": row.metadata,
                "task_uuid": None if row.task_uuid is None else str(row.task_uuid),
            }
            for row in list_resources(runner.pk)
        ]
        return Response({"resources": found})


class PackagesView(UserView):
    @describe(
        summary="The packages a direct worker said it has",
        answer=PackagesAnswer,
        problems=(404,),
        parameters=[WORKER_UUID],
    )
    def get(self, request: Request, worker_uuid: str) -> Response:
        runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.READ)
        capabilities = Worker.objects.get(pk=runner.pk).capabilities or {}
        return Response({"packages": capabilities.get("packages", [])})

    @describe(
        summary="Tell a direct worker to install a package",
        request=PackageOrder,
        answer=PackageOrderAnswer,
        status=202,
        problems=(404, 409),
        parameters=[WORKER_UUID],
    )
    def post(self, request: Request, worker_uuid: str) -> Response:
        worker = _connected(request, worker_uuid)
        body = read_body(request, PackageOrder)
        group = _tenant(worker)
        attachment = get_attachment(group, body["attachment_key"])
        download = attachment_download(group, attachment)
        if download.sha256 is None:
            raise InvalidInput(
                "attachment_key: a package needs the sha256 it was uploaded with",
                code=ErrorCode.PACKAGE_INVALID,
            )
        op_id = uuid4()
        order_install(
            actor=current_actor(request),
            worker=worker,
            op_id=op_id,
            package={
                "name": body["name"],
                "version": body["version"],
                "url": download.url,
                "sha256": download.sha256,
                "size_bytes": download.size,
            },
        )
        return Response({"op_id": str(op_id)}, status=202)


class PackageView(UserView):
    @describe(
        summary="Tell a direct worker to remove a package",
        answer=PackageOrderAnswer,
        status=202,
        problems=(404, 409),
        parameters=[WORKER_UUID, PACKAGE, VERSION],
    )
    def delete(self, request: Request, worker_uuid: str, name: str) -> Response:
        worker = _connected(request, worker_uuid)
        op_id = uuid4()
        order_uninstall(
            actor=current_actor(request),
            worker=worker,
            op_id=op_id,
            name=name,
            version=request.query_params.get("version"),
        )
        return Response({"op_id": str(op_id)}, status=202)


def _connected(request: Request, worker_uuid: str) -> Worker:
    """Code on somebody's machine: only for Admins, and only for a worker that listens now."""
    runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.ADMIN)
    if runner.kind is not RunnerKind.DIRECT:
        raise InvalidInput("packages are for direct workers")
    _check_listening(runner)
    return Worker.objects.select_related("runner", "tenant").get(pk=runner.pk)


def _check_listening(runner: Runner) -> None:
    if runner.conn_state is not ConnState.CONNECTED:
        raise Conflict("The worker is not connected")


def _tenant(worker: Worker) -> Any:
    if worker.tenant is None:
        raise Conflict("The worker serves no group on the control plane")
    return worker.tenant
