"""No manager can touch a task, a suite or a manager that is not its own, by any message.

The matrix is every frame that `intrusions` makes of the union, sent by every kind of intruder:
strangers of other groups, a colleague engaged with the same suite, and a former holder.
"""

import json
from dataclasses import replace
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest
from django.db import connection

from managers.models import SuiteAssignment
from managers.services.registration import RegisteredManager
from managers.services.scheduler import run_pass
from managers.services.session_threads import in_thread
from mitosis_protocol.from_manager import FromManager, FromManagerMessage
from suites.models import TaskSuite
from tasks.models import Attachment
from tests.integration.managers.fleet import connect, engagement_of, registered
from tests.integration.suites.campaign import make_suite, make_user, submit
from tests.integration.websocket.intrusions import Frame, Intruder, Loot, intrusions
from tests.integration.websocket.socket_world import FakeServer

pytestmark = [
    pytest.mark.usefixtures("_process"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(180),
]

TASKS = 8
INTRUDERS = ("stranger", "idle stranger", "colleague", "former holder")
# Everything that is known about the victim and its work.
SNAPSHOTS = (
    "SELECT to_jsonb(t) FROM active_tasks t WHERE uuid = ANY (%(tasks)s) ORDER BY id",
    (
        "SELECT to_jsonb(a) FROM task_attempts a JOIN active_tasks t ON t.id = a.task_id"
        " WHERE t.uuid = ANY (%(tasks)s) ORDER BY a.id"
    ),
    "SELECT to_jsonb(t) FROM archived_tasks t WHERE uuid = ANY (%(tasks)s)",
    "SELECT to_jsonb(f) FROM task_execution_failures f WHERE task_uuid = ANY (%(tasks)s)",
    "SELECT to_jsonb(a) FROM suite_assignments a WHERE manager_id = %(manager)s ORDER BY id",
    "SELECT to_jsonb(r) FROM runners r WHERE id = %(manager)s",
    "SELECT to_jsonb(l) FROM runner_leases l WHERE runner_id = %(manager)s",
    "SELECT to_jsonb(m) FROM node_managers m WHERE runner_id = %(manager)s",
    (
        "SELECT count(*) FROM task_events e JOIN active_tasks t ON t.id = e.task_id"
        " WHERE t.uuid = ANY (%(tasks)s)"
    ),
)
SUITE = "SELECT to_jsonb(s) FROM task_suites s WHERE id = %(suite)s"


class Talk:
    """One manager on its socket."""

    def __init__(self, manager: RegisteredManager) -> None:
        self.uuid = str(manager.runner.uuid)
        self.runner = manager.runner
        self.id = manager.runner.pk
        self._headers = {"authorization": f"Bearer {manager.tokens.token}"}
        self._last = 0
        self.server = FakeServer(self._headers)

    async def ask(self, **frame: Any) -> Frame:
        self._last += 1
        self.server.give(**{**frame, "request_id": self._last})
        while (answer := await self.server.answer(20)).get("request_id") != self._last:
            pass
        return answer

    async def at_work(self) -> "Talk":
        assert (await self.server.next(20))["type"] == "websocket.accept"
        for state in ("Preparing", "Executing"):
            await self.ask(type="heartbeat", manager_uuid=self.uuid, state=state, metrics={})
        return self

    async def fetch(self, **more: Any) -> list[Frame]:
        tasks: list[Frame] = (await self.ask(type="fetch_tasks", **more))["tasks"]
        return tasks

    async def anew(self) -> None:
        """Another socket: one that spoke too often in another's name is closed."""
        await self.leave()
        self.server = FakeServer(self._headers)
        assert (await self.server.next(20))["type"] == "websocket.accept"

    async def leave(self) -> None:
        self.server.leave()
        await self.server.task


class World:
    """The victim and a colleague serve one suite, a stranger another one, a second one none."""

    def __init__(self) -> None:
        ada, bob = make_user(f"ada{uuid4().hex[:8]}"), make_user(f"bob{uuid4().hex[:8]}")
        eve = make_user(f"eve{uuid4().hex[:8]}")
        self.managers = [registered(one) for one in (ada, ada, bob, eve)]
        self.suite: TaskSuite = make_suite(ada)
        Attachment.objects.create(group=self.suite.group, key="secret.bin", size=3)
        submit(self.suite, TASKS)
        submit(make_suite(bob), 1)
        connect(*[one.runner for one in self.managers])
        run_pass()
        assert SuiteAssignment.objects.filter(released_at__isnull=True).count() == 3

    async def stage(self) -> tuple[dict[str, Talk], Loot]:
        """The colleague had some of the tasks before; the victim holds all, and has ended one."""
        await in_thread(self._jump_ahead)
        victim, colleague, stranger, idle = [await Talk(one).at_work() for one in self.managers]
        before = await colleague.fetch(max_tasks=2)
        attempts = [task["task_id"] for task in before]
        await colleague.ask(type="return_tasks", task_ids=attempts)
        claim_id, op_id = str(uuid4()), str(uuid4())
        tasks = await victim.fetch(max_tasks=TASKS, claim_id=claim_id)
        assert len(tasks) == TASKS
        now = {task["task_uuid"]: task["task_id"] for task in tasks}
        known, ended = before[0]["task_uuid"], before[1]["task_uuid"]
        start = {"task_id": now[known], "op": "start"}
        done = {"task_id": now[ended], "op": "commit", "exit_status": 0, "op_id": op_id}
        await victim.ask(type="report_tasks", reports=[start, done])
        self.tasks = [UUID(uuid) for uuid in now]
        self.victim_id = victim.id
        self.past = (before[0]["task_id"],)
        rows = SuiteAssignment.objects.filter(manager_id=victim.id)
        loot = Loot(
            manager_uuid=victim.uuid,
            suite_uuid=str(self.suite.uuid),
            assignment_id=(await in_thread(rows.get)).pk,
            task_uuid=known,
            attempts=(now[known],),
            claim_id=claim_id,
            op_id=op_id,
            group_name=self.suite.group.name,
        )
        talks = dict(zip(INTRUDERS, (stranger, idle, colleague, colleague), strict=True))
        await victim.leave()
        return talks, loot

    def _jump_ahead(self) -> None:
        """Numbers of attempts that occur nowhere else in an answer."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval(pg_get_serial_sequence('task_attempts', 'id'), 98765432)")

    def picture(self, *more: str) -> list[Any]:
        names = {"tasks": self.tasks, "manager": self.victim_id, "suite": self.suite.pk}
        found: list[Any] = []
        with connection.cursor() as cursor:
            for statement in (*SNAPSHOTS, *more):
                cursor.execute(statement, names)
                found.append(cursor.fetchall())
        return found


@pytest.fixture
def world(transactional_db: None) -> World:
    return World()


@pytest.mark.parametrize("intruder", INTRUDERS)
async def test_nothing_of_another_manager_can_be_touched(world: World, intruder: str):
    talks, loot = await world.stage()
    talk = talks[intruder]
    theirs = set(loot.attempts)
    engaged = await in_thread(engagement_of, talk.runner)
    sender = Intruder(talk.uuid, None if engaged is None else engaged.pk)
    is_stranger = "stranger" in intruder
    if intruder == "former holder":
        loot = replace(loot, attempts=(*world.past, *loot.attempts))
    # A colleague's own engagement moves its suite; a stranger must not move it at all.
    more = (SUITE,) if is_stranger else ()
    before = await in_thread(world.picture, *more)
    sent = 0
    for kind in get_args(FromManager):
        for frame in intrusions(kind, loot, sender):
            answer = await talk.ask(**frame)
            assert_refused(frame, answer, loot, theirs)
            if is_stranger:
                assert_absent(frame, answer)
            assert await in_thread(world.picture, *more) == before, (frame, answer)
            sent += 1
        await talk.anew()
    assert sent > 60
    for other in {*talks.values()}:
        await other.leave()


def told(answer: Frame, loot: Loot) -> str:
    """An answer without the names it was asked about.

    Numbers of attempts run through the whole installation, and everybody sees how far they are: to
    tell one that is somebody else's from one that was never given tells nothing new.
    """
    text = json.dumps({name: value for name, value in answer.items() if name != "request_id"})
    for value in (loot.manager_uuid, loot.suite_uuid, loot.task_uuid, *loot.attempts):
        text = text.replace(str(value), "<named>")
    return text.replace('"answer": "forbidden"', '"answer": "invalid"')


async def test_what_is_another_tenants_is_answered_like_what_nobody_has(world: World):
    talks, theirs = await world.stage()
    # One without an engagement: nothing of its own can answer in place of what is named.
    talk = talks["idle stranger"]
    sender = Intruder(talk.uuid, None)
    nobodys = Loot(
        manager_uuid=str(uuid4()), suite_uuid=str(uuid4()), assignment_id=2**40,
        task_uuid=str(uuid4()), attempts=(2**41,), claim_id=str(uuid4()), op_id=str(uuid4()),
        group_name="nobody", attachment_key="absent.bin",
    )  # fmt: skip
    different, sent = [], 0
    for kind in get_args(FromManager):
        pairs = zip(
            intrusions(kind, theirs, sender), intrusions(kind, nobodys, sender), strict=True
        )
        for foreign, absent in pairs:
            heard = told(await talk.ask(**foreign), theirs)
            expected = told(await talk.ask(**absent), nobodys)
            sent += 1
            if heard != expected:
                different.append(f"{foreign}: {heard} and not {expected}")
        await talk.anew()
    assert not different, "\n".join(different)
    assert sent > 40
    for other in {*talks.values()}:
        await other.leave()


def assert_refused(frame: Frame, answer: Frame, loot: Loot, theirs: set[int]) -> None:
    """By what the message is about; a new kind of answer has to be judged here, too."""
    match answer["type"]:
        case "error":
            assert answer["code"] != "internal", (frame, answer)
        case "task_report_ack":
            assert answer["success"] is False, (frame, answer)
        case "suite_report_ack":
            # Otherwise it is about the sender's own engagement.
            is_theirs = frame.get("assignment_id") == loot.assignment_id
            assert not (answer["success"] and is_theirs), (frame, answer)
        case "reports_accepted":
            for line in answer["results"]:
                # What a former holder says again about its own past changes nothing.
                known = set() if line["task_id"] in theirs else {"ok_duplicate"}
                refusals = {"forbidden", "stale_attempt", "invalid"}
                assert line["answer"] in refusals | known, (frame, answer)
        case "task_available" | "tasks_available":
            tasks = answer.get("tasks") or [answer.get("task")]
            given = {task["task_id"] for task in tasks if task}
            assert not given & set(loot.attempts), (frame, answer)
        case "welcome" | "heartbeat_ack":
            assert frame.get("manager_uuid") != loot.manager_uuid, (frame, answer)
            mine = {*answer["held"]["kept"], *answer["held"]["adopted"]}
            assert not mine & set(loot.attempts), (frame, answer)
            engaged = answer["engagement"] or {}
            assert engaged.get("assignment_id") != loot.assignment_id, (frame, answer)
        case "resources_resolved":
            assert frame.get("assignment_id") != loot.assignment_id, (frame, answer)
            assert "task_id" not in frame, (frame, answer)
        case other:
            pytest.fail(f"{other} is no refusal of {frame}")


def assert_absent(frame: Frame, answer: Frame) -> None:
    """What a colleague may have of the group they share does not exist for a stranger."""
    assert not answer.get("success"), (frame, answer)
    assert not [one for one in answer.get("resources", []) if one.get("url")], (frame, answer)


def test_every_message_has_a_row_and_every_thing_a_message_can_name_is_tried():
    """Fails for a message or a member that the tables of `intrusions` do not know."""
    loot = Loot("m", "s", 1, "t", (1, 2), "c", "o", "g")
    loot = replace(loot, manager_uuid=str(uuid4()), suite_uuid=str(uuid4()),
                   task_uuid=str(uuid4()), claim_id=str(uuid4()), op_id=str(uuid4()))  # fmt: skip
    sender = Intruder(str(uuid4()), 3)
    frames = {kind: intrusions(kind, loot, sender) for kind in get_args(FromManager)}
    assert all(frames.values())
    with pytest.raises(KeyError, match=r"Novelty\.neighbour_uuid"):
        intrusions(Novelty, loot, sender)


class Novelty(FromManagerMessage, frozen=True, tag="novelty"):
    """A message that somebody adds one day."""

    request_id: int
    neighbour_uuid: UUID
