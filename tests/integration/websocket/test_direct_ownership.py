"""No direct worker reaches an attempt of another runner, by any message, nor learns that it exists.

Every message of the union is sent by workers of another tenant and of the same group, once about
somebody's attempt and once about one that nobody has: nothing changes, and the answers are equal.
"""

import json
from collections.abc import Callable
from typing import Any, get_args
from uuid import uuid4

import pytest
from django.db import connection

from accounts.models import User
from managers.services.session_threads import in_thread
from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Ack,
    Capabilities,
    Error,
    Feedback,
    Handshake,
    Heartbeat,
    HeldAttempt,
    Payload,
    PkgEvent,
    Register,
    Result,
)
from mitosis_protocol.control_plane import FromDirectWorker, Sender, Stamp, seal
from mitosis_protocol.enums import RunnerKind
from tasks.services.claim import claim_for_worker_sync
from tests.integration.suites.campaign import make_user
from tests.integration.websocket.socket_world import FakeServer
from tests.integration.workers.people import new_task, new_worker

pytestmark = [
    pytest.mark.usefixtures("_process"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(180),
]

NOBODYS = 2**40
COMMAND = Capabilities(node_types=["command"])
OP = uuid4()
# What the union can say about an attempt; the ones that cannot name any are there to be tried too.
SAYINGS: dict[type[Payload], Callable[[int, str], list[Payload]]] = {
    Handshake: lambda _, own: [Handshake(worker_id=own, process_id=uuid4())],  # type: ignore[arg-type]
    Register: lambda attempt, _: [
        Register(capabilities=COMMAND, inventory=[HeldAttempt(task_id=attempt)]),
        Register(capabilities=COMMAND, inventory=[HeldAttempt(task_id=attempt)], is_clean=True),
    ],
    Ack: lambda attempt, _: [Ack(for_id=str(attempt)), Ack(for_id=str(attempt), answer="ok")],
    Heartbeat: lambda attempt, _: [Heartbeat(inflight=[attempt])],
    Feedback: lambda attempt, _: [
        Feedback(task_id=attempt, stage="running", progress=0.5),
        Feedback(task_id=attempt, exec_state="ExecSpawned"),  # type: ignore[arg-type]
    ],
    Result: lambda attempt, _: [
        Result(task_id=attempt, status=status, reason="x", op_id=op_id)
        for status in ("succeeded", "failed", "timeout", "oom", "cancelled", "crashed")
        for op_id in (None, OP)
    ],
    Error: lambda attempt, _: [
        Error(code=code, for_id=str(attempt), task_id=attempt)
        for code in (
            ControlCode.CMD_UNKNOWN,
            ControlCode.CMD_CONCURRENCY_VIOLATION,
            ControlCode.DISPATCH_UNAVAILABLE,
        )
    ],
    PkgEvent: lambda _, __: [
        PkgEvent(op_id=OP, op="install", name="models", version="1", status="installed")
    ],
}
PICTURE = (
    "SELECT to_jsonb(t) FROM active_tasks t WHERE uuid = %(task)s",
    "SELECT to_jsonb(a) FROM task_attempts a WHERE id = %(attempt)s",
    "SELECT to_jsonb(t) FROM archived_tasks t WHERE uuid = %(task)s",
    "SELECT to_jsonb(l) FROM runner_leases l WHERE runner_id = %(runner)s",
    (
        "SELECT count(*) FROM task_events e JOIN active_tasks t ON t.id = e.task_id"
        " WHERE t.uuid = %(task)s"
    ),
)


class Victim:
    """A runner with one attempt in its hands."""

    def __init__(self, owner: User) -> None:
        worker = new_worker(owner)
        task = new_task(owner)
        with connection.cursor() as cursor:  # a number that occurs nowhere else in an answer
            cursor.execute("SELECT setval(pg_get_serial_sequence('task_attempts', 'id'), 98765432)")
        claimed = claim_for_worker_sync(runner_id=worker.runner.pk)
        assert claimed is not None
        self.attempt = claimed.attempt_id
        self._names = {
            "task": task.uuid, "attempt": claimed.attempt_id, "runner": worker.runner.pk,
        }  # fmt: skip

    def picture(self) -> list[Any]:
        found = []
        with connection.cursor() as cursor:
            for statement in PICTURE:
                cursor.execute(statement, self._names)
                found.append(cursor.fetchall())
        return found


class Intruder:
    """A direct worker, one session per thing it says."""

    def __init__(self, owner: User) -> None:
        self.worker = new_worker(owner, kind=RunnerKind.DIRECT)
        self.uuid = str(self.worker.runner.uuid)
        self._tenant = owner.username

    async def hears(self, payload: Payload, attempt: int) -> str:
        """Everything it is told after saying that, without what is new in every session."""
        bearer = {"authorization": f"Bearer {self.worker.token}"}
        server = FakeServer(bearer, path="/ws/workers")
        assert (await server.next(20))["type"] == "websocket.accept"
        self._say(server, Handshake(worker_id=self.worker.runner.uuid, process_id=uuid4()))
        await server.answer(20)
        self._say(server, Register(capabilities=COMMAND))
        await server.answer(20)
        sent = self._say(server, payload, corr=str(attempt), seq=1)
        # Messages are handled at the same time; an ack alone is never answered.
        told = [] if isinstance(payload, Ack) else await self._until(server, sent)
        if not told or told[-1]["type"] != "websocket.close":
            told += await self._until(server, self._say(server, Heartbeat()))
        if told[-1]["type"] != "websocket.close":
            server.leave()
        await server.task
        shown = json.dumps([{k: v for k, v in one.items() if k != "for"} for one in told])
        return shown.replace(str(attempt), "<attempt>")

    def _say(self, server: FakeServer, payload: Payload, **more: Any) -> str:
        sender = Sender(role="worker", id=self.uuid)
        stamp = Stamp(uuid4().hex, "2026-01-01T00:00:00Z", self._tenant, sender)
        server.give_text(seal(payload, stamp, wants_ack=True, **more))
        return stamp.id

    async def _until(self, server: FakeServer, message_id: str) -> list[dict[str, Any]]:
        """What it is told up to the answer to that message, or to the end."""
        told = [await self._next(server)]
        while told[-1].get("for") != message_id and told[-1]["type"] != "websocket.close":
            told.append(await self._next(server))
        return told

    async def _next(self, server: FakeServer) -> dict[str, Any]:
        message = await server.next(20)
        if message["type"] != "websocket.send":
            return {"type": message["type"], "code": message.get("code")}
        frame = json.loads(message["text"])
        payload = {k: v for k, v in frame["payload"].items() if k not in {"session", "message"}}
        return {"type": frame["type"], **payload}


@pytest.mark.parametrize("intruder", ["another tenant's", "a colleague's"])
async def test_no_message_reaches_an_attempt_of_another_runner_or_tells_of_it(intruder: str):
    ada, eve = await in_thread(make_user, "ada"), await in_thread(make_user, "eve")
    victim = await in_thread(Victim, ada)
    liar = await in_thread(Intruder, eve if intruder.startswith("another") else ada)
    before = await in_thread(victim.picture)
    different = []
    for say in SAYINGS.values():
        for theirs, nobodys in zip(
            say(victim.attempt, liar.uuid), say(NOBODYS, liar.uuid), strict=True
        ):
            heard = await liar.hears(theirs, victim.attempt)
            assert await in_thread(victim.picture) == before, theirs
            unheard_of = await liar.hears(nobodys, NOBODYS)
            if heard != unheard_of:
                different.append(f"{theirs}: {heard} and not {unheard_of}")
    assert not different, "\n".join(different)


def test_every_message_of_the_union_is_tried() -> None:
    assert set(SAYINGS) == set(get_args(FromDirectWorker))
