"""What a row of the existing server becomes here. Pure; `run` writes what these return.

A row that this server could not serve raises Unusable with the reason: whoever imports decides
whether to go on without it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from django.contrib.auth.hashers import make_password

from accounts.password import ALGORITHM
from core.errors import InvalidInput
from core.fields import normalised_tags
from mitosis_protocol.enums import (
    ArtifactContentType,
    Outcome,
    TaskPhase,
    TaskResultMessage,
    TaskState,
)
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_LABELS
from mitosis_protocol.specs import TaskSpec
from tasks.new_task import encode_spec, lane_of
from tasks.services.report import outcome_of
from tasks.storage import attachment_key

Row = dict[str, Any]

INT4_MAX: Final = 2**31 - 1
_ARGON2: Final = "$argon2"
_NUL: Final = "\\u0000"  # fits into `json`, not into `jsonb`
_ENDED: Final = {TaskState.FINISHED.code, TaskState.CANCELLED.code}


class Unusable(Exception):
    """This row cannot be taken over; the text says why."""


class _Result(msgspec.Struct, frozen=True):
    exit_status: int
    msg: TaskResultMessage | None = None


def user_row(source: Mapping[str, Any]) -> Row:
    """Both servers hash the same 16 bytes with Argon2, so that passwords go on working."""
    hashed = str(source["encrypted_password"])
    usable = hashed.startswith(_ARGON2)
    return {
        **source,
        "password": f"{ALGORITHM}{hashed}" if usable else make_password(None),
        "group_quota": min(max(source["group_quota"], 0), INT4_MAX),
    }


def worker_row(source: Mapping[str, Any]) -> Row:
    return {**source, **_tags(source)}


def archived_row(source: Mapping[str, Any]) -> Row:
    """A task that ended keeps what it was; only the outcome is new."""
    if source["state"] not in _ENDED:
        raise Unusable(f"an archived task in state {source['state']}")
    result = _result(source["result"])
    return {
        **_task_row(source),
        "spec": _json(source["spec"]),
        "outcome": _outcome(source["state"], result).code,
        "exit_status": None if result is None else result.exit_status,
        "msg": None if result is None or result.msg is None else result.msg.code,
        "reason": "imported without a result" if result is None else None,
        "reporter_uuid": source["reporter_uuid"],
    }


def active_row(source: Mapping[str, Any]) -> Row:
    """Whoever held it is gone with the old server: it is ready again, or still waits."""
    waits = source["state"] == TaskState.PENDING.code and source["has_active_upstream"]
    phase = TaskPhase.PENDING if waits else TaskPhase.READY
    row = _task_row(source)
    return {
        **row,
        "spec": msgspec.Raw(_spec(source["spec"]).encode()),
        "lane": lane_of(row["tags"]),
        "phase": phase.code,
        "waiting_on": int(waits),
    }


def artifact_row(source: Mapping[str, Any]) -> Row:
    """The object stays where it is: the key is the one the existing server made."""
    try:
        content_type = ArtifactContentType.from_code(source["content_type"])
    except InvalidValue as error:
        raise Unusable(f"unknown content type {source['content_type']}") from error
    return {**source, "key": f"{source['task_uuid']}/{content_type.value}.tar.gz"}


def attachment_row(source: Mapping[str, Any]) -> Row:
    try:
        attachment_key(source["group_name"], source["key"])
    except InvalidInput as error:
        raise Unusable(error.message) from error
    return dict(source)


def _task_row(source: Mapping[str, Any]) -> Row:
    kept = (
        *(
            "creator",
            "group_name",
            "number",
            "source_count",
            "uuid",
            "created_at",
            "updated_at",
            "priority",
        ),
        *("state", "upstream_task_uuid", "downstream_task_uuid"),
    )
    row = {name: source[name] for name in kept}
    return {**row, **_tags(source), "timeout_s": min(max(source["timeout"], 0), INT4_MAX)}


def _tags(source: Mapping[str, Any]) -> Row:
    try:
        return {
            "tags": normalised_tags(source["tags"]),
            "labels": normalised_tags(source["labels"], max_items=MAX_LABELS),
        }
    except InvalidValue as error:
        raise Unusable(str(error)) from error


def _spec(text: str) -> str:
    """As a submit would have checked it: a spec that nobody can run must not reach a worker."""
    try:
        return encode_spec(msgspec.json.decode(_json(text), type=TaskSpec))
    except (msgspec.DecodeError, InvalidValue, InvalidInput) as error:
        raise Unusable(f"its spec: {error}") from error


def _json(text: str) -> msgspec.Raw:
    if _NUL in text:
        raise Unusable("its spec holds a NUL")
    return msgspec.Raw(text.encode())


def _result(text: str | None) -> _Result | None:
    if text is None or text == "null":
        return None
    try:
        return msgspec.json.decode(text, type=_Result)
    except msgspec.DecodeError as error:
        raise Unusable(f"its result: {error}") from error


def _outcome(state: int, result: _Result | None) -> Outcome:
    if result is None:
        return Outcome.CANCELLED if state == TaskState.CANCELLED.code else Outcome.FAILED
    return outcome_of(result.exit_status, result.msg)
