"""Changing a worker: tags, labels, the groups it serves, and a group's consent, for users."""

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField, FlagField, TagsField, read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.selectors import access_group
from accounts.views import UserView
from core.errors import InvalidInput
from mitosis_protocol.enums import ConsentState, Role
from mitosis_protocol.limits import MAX_LIST_ITEMS
from runners.services.groups import decide_consent, put_group_roles, remove_group_roles
from workers.api.bodies import WORKER_UUID, NamesField, read_uuid
from workers.selectors import access_worker, get_applicant
from workers.services.attributes import replace_labels, replace_tags


class WorkerTags(serializers.Serializer[Any]):
    tags = TagsField()


class WorkerLabels(serializers.Serializer[Any]):
    labels = TagsField()


class WorkerGroupRoles(serializers.Serializer[Any]):
    relations = serializers.DictField(child=EnumField(Role))


class WorkerGroupNames(serializers.Serializer[Any]):
    groups = NamesField()


class WorkerConsent(serializers.Serializer[Any]):
    accept = FlagField()


class WorkerConsentAnswer(serializers.Serializer[Any]):
    consent = EnumField(ConsentState)


class TagsView(UserView):
    @describe(
        summary="Replace a worker's tags",
        request=WorkerTags,
        problems=(404,),
        parameters=[WORKER_UUID],
    )
    def put(self, request: Request, worker_uuid: str) -> Response:
        runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.WRITE)
        tags = read_body(request, WorkerTags)["tags"]
        replace_tags(actor=current_actor(request), runner=runner, tags=tags)
        return Response()


class LabelsView(UserView):
    @describe(
        summary="Replace a worker's labels",
        request=WorkerLabels,
        problems=(404,),
        parameters=[WORKER_UUID],
    )
    def put(self, request: Request, worker_uuid: str) -> Response:
        runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.WRITE)
        labels = read_body(request, WorkerLabels)["labels"]
        replace_labels(actor=current_actor(request), runner=runner, labels=labels)
        return Response()


class GroupsView(UserView):
    @describe(
        summary="Give groups a role on the worker; it counts once they accept",
        request=WorkerGroupRoles,
        problems=(404,),
        parameters=[WORKER_UUID],
    )
    def put(self, request: Request, worker_uuid: str) -> Response:
        user = current_user(request)
        runner = access_worker(user, read_uuid(worker_uuid), Role.ADMIN)
        roles = read_body(request, WorkerGroupRoles)["relations"]
        actor = current_actor(request)
        put_group_roles(actor=actor, asked_by=user, runner=runner, roles=roles)
        return Response()

    @describe(
        summary="Take the groups' roles on the worker away",
        problems=(404,),
        parameters=[
            WORKER_UUID,
            OpenApiParameter("groups", OpenApiTypes.STR, required=True, many=True, explode=True),
        ],
    )
    def delete(self, request: Request, worker_uuid: str) -> Response:
        _remove_groups(request, worker_uuid, request.query_params.getlist("groups"))
        return Response()


class RemoveGroupsView(UserView):
    @describe(
        summary="Take the groups' roles on the worker away, named in the body",
        request=WorkerGroupNames,
        problems=(404,),
        parameters=[WORKER_UUID],
    )
    def delete(self, request: Request, worker_uuid: str) -> Response:
        groups = read_body(request, WorkerGroupNames)["groups"]
        _remove_groups(request, worker_uuid, groups)
        return Response()


class ConsentView(UserView):
    @describe(
        summary="A group's answer to a worker that wants to serve it",
        request=WorkerConsent,
        answer=WorkerConsentAnswer,
        problems=(404,),
        parameters=[WORKER_UUID],
    )
    def post(self, request: Request, worker_uuid: str, group: str) -> Response:
        user = current_user(request)
        asked = access_group(user, group, Role.ADMIN).group
        accept = read_body(request, WorkerConsent)["accept"]
        consent = decide_consent(
            actor=current_actor(request),
            decided_by=user,
            runner=get_applicant(asked, read_uuid(worker_uuid)),
            group=asked,
            accept=accept,
        )
        return Response({"consent": consent.value})


def _remove_groups(request: Request, worker_uuid: str, names: list[str]) -> None:
    runner = access_worker(current_user(request), read_uuid(worker_uuid), Role.ADMIN)
    if len(names) > MAX_LIST_ITEMS:
        raise InvalidInput(f"groups: at most {MAX_LIST_ITEMS} names")
    remove_group_roles(actor=current_actor(request), runner=runner, group_names=names)
