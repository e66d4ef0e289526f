"""Fields, answers and query parameters that several manager routes share."""

from typing import Any, Final

from django.conf import settings
from rest_framework import serializers
from rest_framework.request import Request

from accounts.bodies import EnumField
from core.errors import InvalidInput
from mitosis_protocol.durations import parse_duration
from mitosis_protocol.enums import ConnState, DesiredState, ManagerState, Role
from mitosis_protocol.errors import InvalidValue

MAX_QUERY_TEXTS: Final = 64


class ManagerInfo(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    creator_username = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    labels = serializers.ListField(child=serializers.CharField())
    state = EnumField(ManagerState)
    desired_state = EnumField(DesiredState)
    connection = EnumField(ConnState)
    last_heartbeat = serializers.CharField(help_text="Like `2025-11-11T10:30:00.000000Z`.")
    assigned_suite_uuid = serializers.UUIDField(allow_null=True)
    lease_expires_at = serializers.CharField(
        allow_null=True, help_text="Until when the host stays with its suite while it has work."
    )
    created_at = serializers.CharField()
    updated_at = serializers.CharField()


class ManagerAnswer(ManagerInfo):
    groups = serializers.DictField(child=EnumField(Role), help_text="Groups that accepted it.")
    pending_groups = serializers.DictField(
        child=EnumField(Role), help_text="Groups that have not answered yet."
    )
    reason = serializers.CharField(help_text="Why it drains, is in quarantine or leaves.")
    probe_after = serializers.CharField(allow_null=True)
    config_version = serializers.IntegerField()


class ManagerListAnswer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Of all pages together.")
    managers = ManagerInfo(many=True)
    limit = serializers.IntegerField()
    offset = serializers.IntegerField()


def texts_of(request: Request, name: str) -> list[str] | None:
    """A set in the query: repeated, or with commas. Absent is None; empty is refused."""
    values = request.query_params.getlist(name)
    if not values:
        return None
    texts = [text for value in values for text in value.split(",")]
    if len(texts) > MAX_QUERY_TEXTS or not all(texts) or any("\x00" in text for text in texts):
        raise InvalidInput(f"{name}: 1 to {MAX_QUERY_TEXTS} texts, none of them empty")
    return texts


def number_of(request: Request, name: str, *, default: int, most: int) -> int:
    """A number in the query, between 0 and `most`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or int(text) > most:
        raise InvalidInput(f"{name}: a whole number from 0 to {most}")
    return int(text)


def page_of(request: Request) -> tuple[int, int]:
    """Limit and offset."""
    policy = settings.MITOSIS
    limit = number_of(request, "limit", default=policy.page_rows, most=policy.page_rows_max)
    return limit, number_of(request, "offset", default=0, most=1_000_000)


def seconds_of(field: str, text: str) -> int:
    """A duration above zero; raises InvalidInput naming the field."""
    try:
        seconds = parse_duration(text)
    except InvalidValue as error:
        raise InvalidInput(f"{field}: {error}") from error
    if seconds == 0:
        raise InvalidInput(f"{field}: it has to be above zero")
    return seconds
