"""Changing a manager: tags, labels, the groups it serves, and a group's consent, for users."""

import uuid
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
from managers.selectors import access_manager, get_applicant
from managers.services import attributes
from mitosis_protocol.enums import ConsentState, Role
from mitosis_protocol.limits import MAX_LIST_ITEMS
from runners.models import Runner


class ManagerTags(serializers.Serializer[Any]):
    tags = TagsField()


class ManagerLabels(serializers.Serializer[Any]):
    labels = TagsField()


class ManagerGroups(serializers.Serializer[Any]):
    relations = serializers.DictField(child=EnumField(Role), allow_empty=False)


class ManagerGroupsAnswer(serializers.Serializer[Any]):
    consents = serializers.DictField(child=EnumField(ConsentState))


class ManagerConsent(serializers.Serializer[Any]):
    accept = FlagField()


class ManagerConsentAnswer(serializers.Serializer[Any]):
    consent = EnumField(ConsentState)


class TagsView(UserView):
    @describe(
        summary="Replace a manager's tags; it is matched again",
        request=ManagerTags,
        problems=(404,),
        status=204,
    )
    def put(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = administered(request, manager_uuid)
        tags = read_body(request, ManagerTags)["tags"]
        attributes.replace_tags(actor=current_actor(request), runner=runner, tags=tags)
        return Response(status=204)


class LabelsView(UserView):
    @describe(
        summary="Replace a manager's labels",
        request=ManagerLabels,
        problems=(404,),
        status=204,
    )
    def put(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = administered(request, manager_uuid)
        labels = read_body(request, ManagerLabels)["labels"]
        attributes.replace_labels(actor=current_actor(request), runner=runner, labels=labels)
        return Response(status=204)


class GroupsView(UserView):
    @describe(
        summary="Give groups a role on the manager; it counts once they accept",
        request=ManagerGroups,
        answer=ManagerGroupsAnswer,
        problems=(404,),
    )
    def put(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = administered(request, manager_uuid)
        roles = read_body(request, ManagerGroups)["relations"]
        consents = attributes.put_groups(
            actor=current_actor(request),
            asked_by=current_user(request),
            runner=runner,
            roles=roles,
        )
        return Response({"consents": {name: one.value for name, one in consents.items()}})

    @describe(
        summary="Take the groups' roles on the manager away",
        problems=(404,),
        parameters=[
            OpenApiParameter("groups", OpenApiTypes.STR, required=True, many=True, explode=True)
        ],
        status=204,
    )
    def delete(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        runner = administered(request, manager_uuid)
        names = request.query_params.getlist("groups")
        if not 0 < len(names) <= MAX_LIST_ITEMS:
            raise InvalidInput(f"groups: name 1 to {MAX_LIST_ITEMS} groups")
        attributes.remove_groups(actor=current_actor(request), runner=runner, group_names=names)
        return Response(status=204)


class ConsentView(UserView):
    @describe(
        summary="A group's answer to a manager that wants to serve it",
        request=ManagerConsent,
        answer=ManagerConsentAnswer,
        problems=(404,),
    )
    def post(self, request: Request, manager_uuid: uuid.UUID, group: str) -> Response:
        user = current_user(request)
        asked = access_group(user, group, Role.ADMIN).group
        accept = read_body(request, ManagerConsent)["accept"]
        consent = attributes.decide_consent(
            actor=current_actor(request),
            decided_by=user,
            # Out of reach until it is accepted; one that never asked is absent.
            runner=get_applicant(asked, manager_uuid),
            group=asked,
            accept=accept,
        )
        return Response({"consent": consent.value})


def administered(request: Request, manager_uuid: uuid.UUID) -> Runner:
    """The manager, for an Admin of a group that has Admin on it."""
    return access_manager(current_user(request), manager_uuid, Role.ADMIN).runner
