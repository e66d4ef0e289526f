"""The filter that query, cancel and artifact routes share, and what it means.

Existing clients know its refusals: an empty set is 400, an unknown or foreign group is 400 with
one text for both, a role that is too low is 403.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rest_framework import serializers

from accounts.bodies import EnumField, FlagField, TagsField, TextField, WholeNumberField
from accounts.models import Group, User
from accounts.selectors import access_group
from core.errors import InvalidInput, NotFound
from mitosis_protocol.enums import ArtifactContentType, Role, TaskState
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.number_filter import NumberFilter, parse_number_filter
from tasks.selectors_query import TaskFilter
from tasks.selectors_suites import get_group_suite
from tasks.serializers import MAX_INT64, PageBody, UuidField

# As a uuid is written, as far as it goes.
_PREFIX = re.compile(
    r"[0-9a-f]{1,8}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){0,2}[0-9a-f]{0,4}"
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{0,12}"
)
_SETS = ("creator_usernames", "tags", "labels", "states")
_COMPARISON = "A number with an optional `=`, `!=`, `<`, `<=`, `>` or `>=` in front."


class TaskFilterBody(serializers.Serializer[Any]):
    """All conditions hold together."""

    creator_usernames = serializers.ListField(child=TextField(), required=False, allow_null=True)
    group_name = TextField(
        required=False, allow_null=True, help_text="The caller's own group if absent."
    )
    tags = TagsField(required=False, allow_null=True, help_text="The task has all of them.")
    labels = TagsField(required=False, allow_null=True, help_text="The task has all of them.")
    states = serializers.ListField(child=EnumField(TaskState), required=False, allow_null=True)
    exit_status = TextField(required=False, allow_null=True, help_text=_COMPARISON)
    priority = TextField(required=False, allow_null=True, help_text=_COMPARISON)
    suite_uuid = UuidField(required=False, allow_null=True)


class ReportedFilterBody(TaskFilterBody):
    reporter_uuid = UuidField(
        required=False, allow_null=True, help_text="The runner that committed the task."
    )


class TasksQueryBody(ReportedFilterBody, PageBody):
    count = FlagField(help_text="True: only how many there are.")
    uuid_prefix = TextField(
        required=False, allow_null=True, help_text="How the uuid begins, like `3f2504e0-4f`."
    )
    task_id = WholeNumberField(
        required=False, allow_null=True, min_value=1, max_value=MAX_INT64,
        help_text="The number of the task in its group.",
    )  # fmt: skip


class ArtifactFilterBody(ReportedFilterBody):
    content_type = EnumField(ArtifactContentType)


@dataclass(frozen=True, slots=True)
class Asked:
    """The group a filter is about, and the filter."""

    group: Group
    wanted: TaskFilter


def read_filter(body: Mapping[str, Any], *, caller: User, role: Role) -> Asked:
    """What a validated body asks for. Raises InvalidInput, PermissionDenied, NotFound (suite)."""
    for name in _SETS:
        values = body.get(name)
        if values is not None and not values:
            raise InvalidInput(f"{_SPOKEN[name]} cannot be empty if specified")
    group = group_of_filter(caller, body.get("group_name"), role)
    suite_uuid = body.get("suite_uuid")
    suite = None if suite_uuid is None else get_group_suite(group.pk, suite_uuid)
    wanted = TaskFilter(
        group_id=group.pk,
        creator_usernames=body.get("creator_usernames"),
        tags=body.get("tags"),
        labels=body.get("labels"),
        states=body.get("states"),
        exit_status=_comparison(body, "exit_status"),
        priority=_comparison(body, "priority"),
        reporter_uuid=body.get("reporter_uuid"),
        suite_id=None if suite is None else suite.pk,
        uuid_prefix=_prefix(body.get("uuid_prefix")),
        number=body.get("task_id"),
    )
    return Asked(group, wanted)


def group_of_filter(caller: User, name: str | None, role: Role) -> Group:
    """The named group, or the caller's own."""
    wanted = caller.username if name is None else name
    try:
        return access_group(caller, wanted, role).group
    except NotFound as error:
        raise InvalidInput(
            f"Group with name {wanted} not found or user is not in the group"
        ) from error


_SPOKEN = {
    "creator_usernames": "Creator usernames",
    "tags": "Tags",
    "labels": "Labels",
    "states": "States",
}


def _prefix(text: str | None) -> str | None:
    if text is not None and _PREFIX.fullmatch(text.lower()) is None:
        raise InvalidInput("uuid_prefix: no uuid begins like that")
    return text


def _comparison(body: Mapping[str, Any], name: str) -> NumberFilter | None:
    text = body.get(name)
    if text is None:
        return None
    try:
        return parse_number_filter(text)
    except InvalidValue as error:
        raise InvalidInput(f"{name}: {error}") from error
