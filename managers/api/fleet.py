"""Registering managers and looking at them, for users."""

import uuid
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import TagsField, TextField, read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.views import UserView
from core.errors import InvalidInput
from managers.api.bodies import (
    ManagerAnswer,
    ManagerListAnswer,
    page_of,
    seconds_of,
    texts_of,
)
from managers.api.info import manager_answer, manager_infos
from managers.selectors import ManagerFilter, access_manager, list_managers
from managers.services.registration import NewManager, RegisteredManager, register_manager
from mitosis_protocol.enums import ConsentState, ManagerState, Role
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_LIST_ITEMS
from mitosis_protocol.timestamps import format_rfc3339

FILTERS = [
    OpenApiParameter("group_name", OpenApiTypes.STR),
    OpenApiParameter("tags", OpenApiTypes.STR, description="With commas, or repeated."),
    OpenApiParameter("labels", OpenApiTypes.STR, description="With commas, or repeated."),
    OpenApiParameter("state", OpenApiTypes.STR, description="With commas, or repeated."),
    OpenApiParameter("creator_username", OpenApiTypes.STR),
    OpenApiParameter("consent", OpenApiTypes.STR, description="Accepted unless given."),
    OpenApiParameter("limit", OpenApiTypes.INT),
    OpenApiParameter("offset", OpenApiTypes.INT),
]


class ManagerRegistration(serializers.Serializer[Any]):
    tags = TagsField(required=False, default=list)
    labels = TagsField(required=False, default=list)
    groups = serializers.ListField(
        child=TextField(),
        required=False,
        default=list,
        max_length=MAX_LIST_ITEMS,
        help_text="`name` or `name:role`; without a role Write is meant.",
    )
    lifetime = TextField(
        required=False,
        allow_null=True,
        default=None,
        help_text="Of the registration, like `30d`, which is also the most.",
    )


class ManagerRegistrationAnswer(serializers.Serializer[Any]):
    manager_uuid = serializers.UUIDField()
    token = serializers.CharField()
    token_expires_at = serializers.CharField()
    refresh_token = serializers.CharField(help_text="Works once; refreshing answers the next.")
    refresh_expires_at = serializers.CharField()
    websocket_url = serializers.CharField()
    pending_groups = serializers.ListField(
        child=serializers.CharField(), help_text="Groups whose Admins still have to accept it."
    )


class ManagersView(UserView):
    @describe(
        summary="Register a manager; it serves a group once an Admin there accepts it",
        request=ManagerRegistration,
        answer=ManagerRegistrationAnswer,
        status=201,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, ManagerRegistration)
        policy = settings.MITOSIS
        new = NewManager(
            tags=body["tags"],
            labels=body["labels"],
            groups=body["groups"],
            lease_ttl_s=policy.lease_ttl_s,
            access_s=policy.manager_access_s,
            lifetime_s=_lifetime_s(body["lifetime"]),
        )
        manager = register_manager(
            actor=current_actor(request), owner=current_user(request), new=new
        )
        return Response(_registered(manager), status=201)

    @extend_schema(operation_id="managers_list")
    @describe(summary="Managers the caller reaches", answer=ManagerListAnswer, parameters=FILTERS)
    def get(self, request: Request) -> Response:
        limit, offset = page_of(request)
        rows = list_managers(current_user(request), _filter(request))
        managers = manager_infos(rows[offset : offset + limit])
        return Response(
            {"count": rows.count(), "managers": managers, "limit": limit, "offset": offset}
        )


class ManagerView(UserView):
    @describe(summary="One manager", answer=ManagerAnswer, problems=(404,))
    def get(self, request: Request, manager_uuid: uuid.UUID) -> Response:
        return Response(
            manager_answer(access_manager(current_user(request), manager_uuid, Role.READ))
        )


def _registered(manager: RegisteredManager) -> dict[str, object]:
    pending = [
        name for name, consent in manager.consents.items() if consent is not ConsentState.ACCEPTED
    ]
    tokens = manager.tokens
    return {
        "manager_uuid": str(manager.runner.uuid),
        "token": tokens.token,
        "token_expires_at": format_rfc3339(tokens.expires_at),
        "refresh_token": tokens.refresh_token,
        "refresh_expires_at": format_rfc3339(tokens.refresh_expires_at),
        # From the settings, never from the Host header: that is the caller's word.
        "websocket_url": _websocket_url(settings.MITOSIS_PUBLIC_URL),
        "pending_groups": sorted(pending),
    }


def _websocket_url(public_url: str) -> str:
    parts = urlsplit(public_url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}/ws/managers"


def _lifetime_s(text: str | None) -> float:
    most = float(settings.MITOSIS.token_lifetime_max_s)
    return most if text is None else min(float(seconds_of("lifetime", text)), most)


def _filter(request: Request) -> ManagerFilter:
    states = texts_of(request, "state")
    consent = request.query_params.get("consent", ConsentState.ACCEPTED.value)
    try:
        return ManagerFilter(
            group_name=request.query_params.get("group_name"),
            tags=texts_of(request, "tags"),
            labels=texts_of(request, "labels"),
            states=None if states is None else [ManagerState.parse(one) for one in states],
            creator_username=request.query_params.get("creator_username"),
            consent=ConsentState.parse(consent),
        )
    except InvalidValue as error:
        raise InvalidInput(f"state or consent: {error}") from error
