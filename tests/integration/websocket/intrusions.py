"""Every message a manager can send, filled with somebody else's things: made from the union.

A new message, member or operation that is in none of the tables here fails the tests, so nobody
can add one without saying whose things it may name. Used by test_manager_ownership.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args
from uuid import uuid4

import msgspec

from mitosis_protocol.codec import DecodeFailed
from mitosis_protocol.from_manager import FROM_MANAGER, FromManagerMessage
from mitosis_protocol.manager_reports import ReportKind, ReportTaskOp, TaskEvent, TaskReport

Frame = dict[str, Any]
ABSENT: Final = object()


@dataclass(frozen=True)
class Intruder:
    """Who sends; its own engagement may stand beside somebody else's things, too."""

    manager_uuid: str
    assignment_id: int | None


@dataclass(frozen=True)
class Loot:
    """What the intruder knows about the victim. Attempts: the present ones and, maybe, older."""

    manager_uuid: str
    suite_uuid: str
    assignment_id: int
    task_uuid: str
    attempts: tuple[int, ...]
    claim_id: str
    op_id: str
    group_name: str
    attachment_key: str = "secret.bin"


# Members that name nothing of anybody.
NEUTRAL: Final[Mapping[str, Any]] = {
    "process_id": str(uuid4()),  # drawn by the manager itself
    "protocol_version": 1,
    "is_clean": True,  # the harsher form: what is not named is given back at once
    "state": "Executing",
    "metrics": {},
    "config_version": 1,
    "worker_local_id": 0,
    "max_tasks": 8,
    "failure_count": 1,
    "error_message": "x",
    "signal": 11,
    "reason": "x",
    "tasks_completed": 0,
    "tasks_failed": 0,
    "phase": "preparation",
    "exit_code": 1,
    "stderr_tail": "x",
    "trouble": "command",
    "request_id": 0,  # set when it is sent
}
_EVENT: Final[Mapping[str, Any]] = {
    "exec_state": "ExecSpawned",
    "progress": {"percent": 50},
    "log": {"stream": "stdout", "offset": 0, "data": "aGk="},
}


def intrusions(kind: type[FromManagerMessage], loot: Loot, sender: Intruder) -> list[Frame]:
    """All frames of one message; first those with somebody else's engagement, since others may
    end the sender's own.
    """
    members = [
        (member.encode_name, list(_choices(kind, member, loot, sender)))
        for member in msgspec.structs.fields(kind)
    ]
    names = [name for name, _ in members]
    frames = []
    for values in itertools.product(*[choices for _, choices in members]):
        body = {
            name: value for name, value in zip(names, values, strict=True) if value is not ABSENT
        }
        frame = {"type": kind.__struct_config__.tag, **body}
        if _is_message(frame):
            frames.append(frame)
    return sorted(frames, key=lambda frame: frame.get("assignment_id") != loot.assignment_id)


def _choices(
    kind: type, member: msgspec.structs.FieldInfo, loot: Loot, sender: Intruder
) -> Iterator[Any]:
    name = member.encode_name
    if name in NEUTRAL:
        yield NEUTRAL[name]
        return
    if name == "manager_uuid":
        yield sender.manager_uuid
    if name == "assignment_id" and sender.assignment_id is not None:
        yield sender.assignment_id
    named = _named(loot)
    if name not in named:
        raise KeyError(f"{kind.__name__}.{name} is in no table of tests/integration/websocket")
    yield from named[name]
    if not member.required:
        yield ABSENT


def _named(loot: Loot) -> dict[str, list[Any]]:
    """Members that name somebody's things."""
    return {
        "manager_uuid": [loot.manager_uuid],
        "suite_uuid": [loot.suite_uuid],
        "assignment_id": [loot.assignment_id],
        "task_uuid": [loot.task_uuid],
        "task_id": list(loot.attempts),
        "task_ids": [list(loot.attempts)],
        "inventory": [list(loot.attempts)],
        "claim_id": [loot.claim_id],
        "op_id": [loot.op_id],
        "resources": [
            [{"Attachment": {"key": loot.attachment_key}}],
            [{"Artifact": {"uuid": loot.task_uuid, "content_type": "result"}}],
        ],
        "op": list(_operations(loot)),
        "reports": [[line] for line in _lines(loot)],
        "events": [[event] for event in _events(loot)],
    }


def _operations(loot: Loot) -> Iterator[Any]:
    commit = {"exit_status": 0}
    follow_up = {
        "group_name": loot.group_name,
        "timeout": "1m",
        "task_spec": {"args": ["true"]},
    }
    bodies: dict[str, list[Frame]] = {
        "Finish": [{"exit_code": 0}],
        "Cancel": [{"reason": "x"}],
        "Commit": [commit, {**commit, "op_id": loot.op_id}],
        "Upload": [{"content_type": "result", "content_length": 1}],
        "Submit": [follow_up],
    }
    known = {member.encode_name for member in msgspec.structs.fields(ReportTaskOp)}
    assert set(bodies) == known, "an operation of report_task is missing here"
    yield from ("Finish", "Cancel", "Commit")
    yield from ({name: body} for name, variants in bodies.items() for body in variants)


def _lines(loot: Loot) -> Iterator[Frame]:
    """By the members of a line: only `task_id` and `op_id` name anything."""
    known = {member.encode_name for member in msgspec.structs.fields(TaskReport)}
    assert known == {
        "task_id", "op", "op_id", "exit_status", "msg", "outcome", "reason", "signal",
        "worker_local_id", "result",
    }, "a member of a report line is missing here"  # fmt: skip
    for op in get_args(ReportKind):
        for attempt in loot.attempts:
            yield {"task_id": attempt, "op": op}
            yield {"task_id": attempt, "op": op, "op_id": loot.op_id}


def _events(loot: Loot) -> Iterator[Frame]:
    known = {member.encode_name for member in msgspec.structs.fields(TaskEvent)}
    assert known == {"task_id", *_EVENT}, "a kind of event is missing here"
    for attempt in loot.attempts:
        for name, value in _EVENT.items():
            yield {"task_id": attempt, name: value}


def _is_message(frame: Frame) -> bool:
    """Some combinations are refused before anybody looks at whose things they name."""
    try:
        FROM_MANAGER.decode(msgspec.json.encode(frame))
    except DecodeFailed:
        return False
    return True
