"""Ten thousand frames nobody wants: each kind with what the coordinator has to answer.

Used by test_manager_socket_flood. A kind is sent by managers of its own, none of which sends more
than the burst that a manager has, so that every frame is read and answered.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

Frame = dict[str, Any]
MALFORMED = "protocol.malformed"
UNKNOWN = "protocol.unknown_type"


@dataclass(frozen=True)
class Target:
    """What the hostile ones know about: somebody's attempt, and one of their own that has ended."""

    manager_uuid: str
    suite_uuid: str
    assignment_id: int
    task_uuid: str
    attempt: int


@dataclass(frozen=True)
class Kind:
    """`frames` makes them, `verdicts` are the only answers allowed, all of which have to occur."""

    name: str
    count: int
    frames: Callable[[Target], Iterator[str | bytes]]
    verdicts: frozenset[str]


def verdict_of(answer: Frame) -> str:
    """What an answer says, in one word."""
    if answer["type"] == "error":
        return str(answer["code"])
    if answer["type"] == "reports_accepted":
        return "/".join(sorted({str(line["answer"]) for line in answer["results"]}))
    if answer["type"] in {"task_report_ack", "suite_report_ack"}:
        return "taken" if answer["success"] else "refused"
    if answer["type"] == "tasks_available":
        return "tasks" if answer["tasks"] else "no tasks"
    return str(answer["type"])


def _broken(_: Target) -> Iterator[str | bytes]:
    """A good frame with one character changed and its end cut off."""
    text = json.dumps({"type": "fetch_task", "request_id": 1, "worker_local_id": 2})
    dice = random.Random(7)
    while True:
        cut = dice.randrange(1, len(text) - 1)
        yield text[:cut] + dice.choice('{}[]",:\\') + text[cut + 1 : -1]


def _noise(_: Target) -> Iterator[str | bytes]:
    fixed: list[str | bytes] = [
        "", "{", "null", "[]", "5", '"x"', "{}", '{"type": 5}', b"\xff\xfe", b"\x00" * 64,
        '{"type": null, "request_id": 1}', "\x00", '{"type": "heartbeat"', "NaN", "1e400",
    ]  # fmt: skip
    dice = random.Random(8)
    while True:
        yield from fixed
        yield dice.randbytes(dice.randrange(1, 400))


def _strange(_: Target) -> Iterator[str | bytes]:
    """Types of the other direction, of other protocols, and with tricks in the name."""
    names = (
        "nope",
        "welcome",
        "error",
        "Heartbeat",
        "heartbeat ",
        "__class__",
        "cmd.dispatch",
        "é",
    )
    while True:
        for name in names:
            yield json.dumps({"type": name, "request_id": 3})


def _wrong(_: Target) -> Iterator[str | bytes]:
    """Messages we know, with members that are not what they should be."""
    uuid = str(uuid4())
    bodies: list[Frame] = [
        {"type": "fetch_task"},
        {"type": "fetch_task", "request_id": -1, "worker_local_id": 0},
        {"type": "fetch_task", "request_id": 2**64, "worker_local_id": 0},
        {"type": "fetch_task", "request_id": "1", "worker_local_id": 0},
        {"type": "fetch_tasks", "request_id": 1, "max_tasks": 100_000},
        {"type": "report_task", "request_id": 1, "task_id": 1, "op": "Explode"},
        {"type": "report_task", "request_id": 1, "task_id": 1, "op": {}},
        {"type": "report_task", "request_id": 1, "task_id": 1, "op": {"Commit": {}, "Cancel": {}}},
        {"type": "report_tasks", "request_id": 1, "reports": []},
        {"type": "return_tasks", "request_id": 1, "task_ids": [1.5]},
        {"type": "abort_task", "task_uuid": "x", "reason": ""},
        {"type": "abort_task", "task_uuid": uuid, "reason": None},
        {"type": "heartbeat", "manager_uuid": uuid, "state": "Asleep", "metrics": {}},
        {"type": "hello", "request_id": 1, "process_id": uuid, "inventory": list(range(5000))},
        {"type": "resolve_resources", "request_id": 1, "resources": [{}], "task_id": 1},
    ]
    while True:
        for body in bodies:
            yield json.dumps(body)
        yield '{"type": "abort_task", "task_uuid": "' + uuid + '", "reason": "\\ud800"}'


def _bombs(_: Target) -> Iterator[str | bytes]:
    """Small for whoever sends them, meant to be large for whoever reads them."""
    while True:
        yield '{"x": ' + "[" * 100_000
        yield '{"type": "fetch_task", "request_id": ' + "9" * 4300 + "}"
        yield '{"type": "hello", "metrics": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}"
        yield "[" + "0," * 50_000 + "0]"


def _theft(target: Target) -> Iterator[str | bytes]:
    """Reports about somebody else's attempt, with texts that bite careless readers."""
    poison = "'; DROP TABLE active_tasks; --<script>{{7*7}}%s%(x)s{0}"
    lines = [{"task_id": target.attempt, "op": op} for op in ("start", "finish", "commit")]
    while True:
        yield _message("report_tasks", reports=lines)
        yield _message("return_tasks", task_ids=[target.attempt])
        yield _message(
            "abort_task", task_uuid=target.task_uuid, task_id=target.attempt, reason=poison
        )
        yield _message("abort_task", task_uuid=target.task_uuid, reason=poison + chr(0))
        yield _message("report_task", task_id=target.attempt, op={"Commit": {"exit_status": 0}})
        yield _message(
            "suite_completed",
            suite_uuid=target.suite_uuid,
            assignment_id=target.assignment_id,
            tasks_completed=0,
            tasks_failed=0,
        )


def _out_of_order(target: Target) -> Iterator[str | bytes]:
    """Ends before beginnings, about attempts that nobody was ever given."""
    n = 10**12
    while True:
        n += 1
        yield _message("report_task", task_id=n, op="Commit")
        yield _message("report_task", task_id=n, op={"Finish": {"exit_code": 0}})
        yield _message("report_tasks", reports=[{"task_id": n, "op": "commit", "exit_status": 0}])
        yield _message("fetch_tasks", max_tasks=1, assignment_id=n)
        yield _message("suite_failed", suite_uuid=str(uuid4()), phase="cleanup")


def _message(kind: str, **members: object) -> str:
    return json.dumps({"type": kind, "request_id": 9, **members})


# What names a task by its uuid and an attempt of somebody else is `stale` or `forbidden`.
KINDS = (
    *[
        Kind(f"broken {n}", 900, _broken, frozenset({MALFORMED, UNKNOWN})) for n in range(3)
    ],
    Kind("noise", 900, _noise, frozenset({MALFORMED})),
    *[Kind(f"strange {n}", 900, _strange, frozenset({UNKNOWN})) for n in range(2)],
    *[Kind(f"wrong {n}", 900, _wrong, frozenset({MALFORMED})) for n in range(2)],
    Kind("bombs", 100, _bombs, frozenset({MALFORMED})),
    Kind("theft", 450, _theft, frozenset({"forbidden", "refused", MALFORMED})),
    Kind("out of order", 450, _out_of_order, frozenset({"refused", "invalid", "no tasks"})),
)  # fmt: skip
