"""Bodies and answers of the suite routes that serializers describe; specs are msgspec structs."""

from typing import Any

from rest_framework import serializers

from accounts.bodies import EnumField, FlagField, TextField, WholeNumberField
from mitosis_protocol.enums import Outcome, PartitionPolicy, SelectionType, SuiteState
from mitosis_protocol.limits import (
    MAX_ERROR_MESSAGE_CHARS,
    MAX_LIST_ITEMS,
    MAX_NAME_CHARS,
    MAX_PAGE_SIZE,
)

MAX_OFFSET = 1_000_000  # beyond it a filter finds faster than paging would
_MOMENT = "RFC 3339, in UTC."


class _Texts(serializers.ListField):
    child = TextField(allow_blank=False)


class SuiteQueryBody(serializers.Serializer[Any]):
    """All conditions hold together; null and a missing member ask for nothing."""

    group_name = TextField(required=False, allow_null=True)
    tags = _Texts(required=False, allow_null=True, max_length=MAX_LIST_ITEMS)
    labels = _Texts(required=False, allow_null=True, max_length=MAX_LIST_ITEMS)
    states = serializers.ListField(child=EnumField(SuiteState), required=False, allow_null=True)
    name = TextField(
        required=False,
        allow_null=True,
        max_length=MAX_NAME_CHARS,
        help_text="Part of the name, whatever the case.",
    )
    limit = WholeNumberField(required=False, allow_null=True, min_value=0, max_value=MAX_PAGE_SIZE)
    offset = WholeNumberField(required=False, allow_null=True, min_value=0, max_value=MAX_OFFSET)


class SuiteInfo(serializers.Serializer[Any]):
    """What lists show."""

    uuid = serializers.UUIDField()
    name = serializers.CharField(allow_null=True)
    group_name = serializers.CharField()
    creator_username = serializers.CharField()
    tags = serializers.ListField(child=serializers.CharField())
    labels = serializers.ListField(child=serializers.CharField())
    state = EnumField(SuiteState)
    priority = serializers.IntegerField()
    total_tasks = serializers.IntegerField(help_text="Ever submitted.")
    pending_tasks = serializers.IntegerField(help_text="Not ended yet, waiting or running.")
    succeeded_tasks = serializers.IntegerField()
    failed_tasks = serializers.IntegerField()
    cancelled_tasks = serializers.IntegerField()
    is_paused = serializers.BooleanField()
    blocked_reason = serializers.CharField(allow_null=True)
    last_task_submitted_at = serializers.CharField(allow_null=True, help_text=_MOMENT)
    created_at = serializers.CharField(help_text=_MOMENT)
    updated_at = serializers.CharField(help_text=_MOMENT)
    completed_at = serializers.CharField(allow_null=True, help_text=_MOMENT)


class SuiteAnswer(SuiteInfo):
    """Everything about one suite."""

    description = serializers.CharField(allow_null=True)
    worker_schedule = serializers.DictField()
    env_preparation = serializers.DictField(allow_null=True)
    env_cleanup = serializers.DictField(allow_null=True)
    limits = serializers.DictField(allow_null=True)
    retry = serializers.DictField(allow_null=True)
    max_running = serializers.IntegerField(allow_null=True)
    max_failures = serializers.IntegerField(allow_null=True)
    failure_rate = serializers.FloatField(allow_null=True)
    settle_seconds = serializers.IntegerField()
    linger_seconds = serializers.IntegerField()
    auto_match = serializers.BooleanField()
    on_partition = EnumField(PartitionPolicy)
    generation = serializers.IntegerField(help_text="Counts from 1; one more per reopening.")
    paused_at = serializers.CharField(allow_null=True, help_text=_MOMENT)
    blocked_at = serializers.CharField(allow_null=True, help_text=_MOMENT)
    closed_at = serializers.CharField(allow_null=True, help_text=_MOMENT)
    cancelled_at = serializers.CharField(allow_null=True, help_text=_MOMENT)
    cancel_reason = serializers.CharField(allow_null=True)
    assigned_managers = serializers.ListField(
        child=serializers.UUIDField(), help_text="Managers that may be given the suite."
    )
    active_managers = serializers.ListField(
        child=serializers.UUIDField(), help_text="Managers that work for it now."
    )


class CreatedAnswer(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    state = EnumField(SuiteState)
    assigned_managers = serializers.ListField(child=serializers.UUIDField())


class SuiteListAnswer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Of all pages together.")
    suites = SuiteInfo(many=True, help_text="Newest first.")
    limit = serializers.IntegerField()
    offset = serializers.IntegerField()


class StateAnswer(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    suite_state = EnumField(SuiteState)
    is_paused = serializers.BooleanField()
    changed = serializers.BooleanField(help_text="False: it was so before.")


class CancelBody(serializers.Serializer[Any]):
    reason = TextField(
        required=False, default="cancelled by a user", max_length=MAX_ERROR_MESSAGE_CHARS
    )
    cancel_running_tasks = FlagField(
        required=False, default=True, help_text="False lets what runs go on to its end."
    )


class CancelAnswer(serializers.Serializer[Any]):
    cancelled_task_count = serializers.IntegerField(help_text="Ended, or told to stop.")
    cancelling_task_count = serializers.IntegerField(help_text="Of these, still running.")
    suite_state = EnumField(SuiteState)


class RerunBody(serializers.Serializer[Any]):
    outcomes = serializers.ListField(
        child=EnumField(Outcome),
        required=False,
        allow_empty=False,
        default=lambda: [Outcome.FAILED, Outcome.TIMEOUT, Outcome.OOM, Outcome.UPSTREAM_FAILED],
        help_text="How the tasks ended that shall run again.",
    )
    task_uuids = serializers.ListField(
        child=serializers.UUIDField(),
        required=False,
        allow_null=True,
        allow_empty=False,
        max_length=MAX_LIST_ITEMS,
        help_text="Only these, if they ended so.",
    )


class RerunTask(serializers.Serializer[Any]):
    uuid = serializers.UUIDField()
    task_id = serializers.IntegerField()
    rerun_of = serializers.UUIDField()


class RerunAnswer(serializers.Serializer[Any]):
    count = serializers.IntegerField()
    tasks = RerunTask(many=True, help_text="New tasks, in the order of the old ones.")
    has_more = serializers.BooleanField(help_text="Call again: one call takes a bounded number.")
    suite_state = EnumField(SuiteState)


class ManagersBody(serializers.Serializer[Any]):
    manager_uuids = serializers.ListField(
        child=serializers.UUIDField(), allow_empty=False, max_length=MAX_LIST_ITEMS
    )


class MatchedManager(serializers.Serializer[Any]):
    manager_uuid = serializers.UUIDField()
    matched_tags = serializers.ListField(child=serializers.CharField())
    selection_type = EnumField(SelectionType)


class RefreshAnswer(serializers.Serializer[Any]):
    added_managers = MatchedManager(many=True)
    removed_managers = serializers.ListField(child=serializers.UUIDField())
    total_assigned = serializers.IntegerField()


class AddedAnswer(serializers.Serializer[Any]):
    added_managers = serializers.ListField(child=serializers.UUIDField())
    rejected_managers = serializers.ListField(child=serializers.UUIDField())
    reason = serializers.CharField(allow_null=True)


class RemovedAnswer(serializers.Serializer[Any]):
    removed_count = serializers.IntegerField()
