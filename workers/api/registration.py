"""Registering a worker and looking at it, for users."""

from typing import Any

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField, FlagField, TagsField, TextField, read_body
from accounts.guards import current_actor, current_user
from accounts.models import Group
from accounts.schema import describe
from accounts.selectors import access_group
from accounts.views import UserView
from core.errors import InvalidInput, NotFound, PermissionDenied
from mitosis_protocol.durations import parse_duration
from mitosis_protocol.enums import ConsentState, Role, RunnerKind
from mitosis_protocol.errors import InvalidValue
from runners.selectors import list_group_roles
from workers.api.announcement import lease_ttl_s
from workers.api.bodies import (
    WORKER_UUID,
    NamesField,
    WorkerAnswer,
    WorkerFilterBody,
    WorkerInfo,
    read_uuid,
)
from workers.api.info import worker_infos
from workers.selectors import WorkerFilter, access_worker, list_group_workers
from workers.services.certificates import certificate_to_bind
from workers.services.registration import NewWorker, register_worker

KINDS = {"independent": RunnerKind.INDEPENDENT, "direct": RunnerKind.DIRECT}


class WorkerRegistration(serializers.Serializer[Any]):
    tags = TagsField()
    labels = TagsField()
    groups = NamesField(help_text="`name` or `name:role`; without a role Write is meant.")
    lifetime = TextField(
        required=False, allow_null=True, help_text="Of the token, like `7d`; at most 30 days."
    )
    kind = serializers.ChoiceField(choices=sorted(KINDS), required=False, default="independent")


class WorkerRegistrationAnswer(serializers.Serializer[Any]):
    worker_id = serializers.UUIDField()
    token = serializers.CharField()
    redis_url = serializers.CharField(allow_null=True)
    pending_groups = serializers.ListField(
        child=serializers.CharField(), help_text="Groups whose Admins still have to accept it."
    )


class WorkerQuery(WorkerFilterBody):
    count = FlagField(help_text="True: only how many there are.")
    consent = EnumField(
        ConsentState,
        required=False,
        default=ConsentState.ACCEPTED,
        help_text="Anything but Accepted is for Admins of the group.",
    )


class WorkerQueryAnswer(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    workers = WorkerInfo(many=True)
    group_name = serializers.CharField()


class RegisterView(UserView):
    @describe(
        summary="Register a worker; it serves a group once an Admin there accepts it",
        request=WorkerRegistration,
        answer=WorkerRegistrationAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, WorkerRegistration)
        kind = KINDS[body["kind"]]
        is_direct = kind is RunnerKind.DIRECT
        new = NewWorker(
            kind=kind,
            tags=body["tags"],
            labels=body["labels"],
            groups=body["groups"],
            # A direct worker's socket renews the lease as a manager's does.
            lease_ttl_s=settings.MITOSIS.lease_ttl_s if is_direct else lease_ttl_s(request),
            token_lifetime_s=token_lifetime_s(body.get("lifetime")),
            certificate=_certificate(request) if is_direct else None,
        )
        worker = register_worker(actor=current_actor(request), owner=current_user(request), new=new)
        pending = [
            name
            for name, consent in worker.consents.items()
            if consent is not ConsentState.ACCEPTED
        ]
        return Response(
            {
                "worker_id": str(worker.runner.uuid),
                "token": worker.token,
                # Shared credentials would let any worker forge any tenant's states.
                "redis_url": None,
                "pending_groups": sorted(pending),
            }
        )


class WorkerView(UserView):
    @describe(summary="One worker", answer=WorkerAnswer, problems=(404,), parameters=[WORKER_UUID])
    def get(self, request: Request, worker_uuid: str) -> Response:
        runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.READ)
        [info] = worker_infos([runner])
        return Response(
            {
                "info": info,
                "groups": _roles(runner.pk, ConsentState.ACCEPTED),
                "pending_groups": _roles(runner.pk, ConsentState.PENDING),
            }
        )


class QueryView(UserView):
    @describe(summary="The workers of a group", request=WorkerQuery, answer=WorkerQueryAnswer)
    def post(self, request: Request) -> Response:
        body = read_body(request, WorkerQuery)
        wanted = worker_filter(body, consent=body["consent"])
        role = Role.READ if wanted.consent is ConsentState.ACCEPTED else Role.ADMIN
        group = member_group(request, body.get("group_name"), role)
        rows = list_group_workers(group, wanted)
        infos = [] if body["count"] else worker_infos(rows)
        count = rows.count() if body["count"] else len(infos)
        return Response({"count": count, "workers": infos, "group_name": group.name})


def member_group(request: Request, name: str | None, role: Role) -> Group:
    """The named group, else the caller's own. Here existing clients expect 403 where others 404."""
    user = current_user(request)
    try:
        return access_group(user, name or user.username, role).group
    except NotFound as error:
        raise PermissionDenied from error


def worker_filter(
    body: dict[str, Any], *, consent: ConsentState = ConsentState.ACCEPTED
) -> WorkerFilter:
    """A filter from a validated body; raises InvalidInput for an empty set."""
    for name in ("role", "tags", "labels"):
        if body.get(name) == []:
            raise InvalidInput(f"{name.capitalize()} cannot be empty if specified")
    return WorkerFilter(
        roles=body.get("role"),
        tags=body.get("tags"),
        labels=body.get("labels"),
        creator_username=body.get("creator_username"),
        consent=consent,
    )


def _roles(runner_id: int, consent: ConsentState) -> dict[str, str]:
    roles = list_group_roles(runner_id, consent=consent)
    return {name: role.value for name, role in roles.items()}


def _certificate(request: Request) -> str | None:
    return certificate_to_bind(request.headers.get(settings.MTLS_HEADER))


def token_lifetime_s(text: str | None) -> float:
    """What was asked for, within the policy; raises InvalidInput."""
    policy = settings.MITOSIS
    if text is None:
        return float(policy.worker_token_s)
    try:
        asked_s = parse_duration(text)
    except InvalidValue as error:
        raise InvalidInput(f"lifetime: {error}") from error
    if asked_s == 0:
        raise InvalidInput("lifetime: it has to be above zero")
    return float(min(asked_s, policy.token_lifetime_max_s))
