"""The control plane on a real server, spoken to by a client made from its JSON Schemas alone.

One cluster for the file; every test has a user, and so a tenant, of its own (control_lab).
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import websockets

from tests.e2e import schema_worker
from tests.e2e.control_lab import Lab, admin_user, lab_of_one, live_cluster
from tests.e2e.schema_worker import Frame
from tests.integration.tasks.live_client import LiveUser, eventually

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
live = pytest.fixture(name="live", scope="module")(live_cluster)
admin = pytest.fixture(name="admin", scope="module")(admin_user)
lab = pytest.fixture(name="lab")(lab_of_one)


async def in_thread(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return await asyncio.to_thread(call, *args, **kwargs)


def code_of(answer: Frame) -> str:
    assert answer["type"] == "error", answer
    return str(answer["payload"]["code"])


def feedback(dispatch: Frame, **said: Any) -> dict[str, Any]:
    return {"task_id": dispatch["payload"]["task_id"], **said}


def corr(dispatch: Frame) -> str:
    return str(dispatch["payload"]["task_id"])


# --- a session ------------------------------------------------------------------------------


async def test_a_client_made_from_the_schemas_completes_a_session(lab: Lab):
    token, worker_id = lab.enrol()
    uuid = lab.user.submit()
    program = Path(schema_worker.__file__)
    done = await in_thread(
        subprocess.run,
        [sys.executable, program, lab.live.url, token, lab.user.name, worker_id],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout.strip(), done.returncode) == (uuid, 0), done.stderr
    info = lab.info(uuid)
    assert (info["outcome"], info["report"]["outputs"]) == ("succeeded", {"answer": 42})
    [(outcome, detail)] = lab.audit("cmd.dispatch")
    assert (outcome, detail["node_type"]) == ("ok", "command")


async def test_the_exchange_of_the_docs_happens_on_a_running_coordinator(lab: Lab):
    token, worker_id = lab.enrol()
    uuid = lab.user.submit(timeout="1m")
    async with schema_worker.session(lab.live.url, token, lab.user.name, worker_id) as worker:
        await worker.handshake(process_id=str(UUID(int=7)))
        await worker.register()
        dispatch = await worker.next("cmd.dispatch")
        await worker.result(dispatch)
        await worker.ask("heartbeat", {"inflight": [], "mem_pct": 12.5})
        found = worker.recorded({worker_id: "WORKER", uuid: "TASK", lab.user.name: "lab"})
    page = (ROOT / "docs" / "control-plane.md").read_text()
    written = page.partition("<!-- exchange -->\n```\n")[2].partition("```")[0]
    assert "\n".join(found) == written.strip()


async def test_messages_out_of_their_time_are_denied_and_unknown_ones_named(lab: Lab):
    token, worker_id = lab.enrol()
    async with schema_worker.session(lab.live.url, token, lab.user.name, worker_id) as worker:
        assert code_of(await worker.ask("heartbeat", {})) == "E.SESSION.DENIED"
        assert (await worker.handshake())["type"] == "ack"
        said = {"task_id": 1, "status": "succeeded"}
        assert code_of(await worker.ask("result", said, corr="1", seq=1)) == "E.SESSION.DENIED"
        unknown = worker.frame("cmd.fly", {})
        await worker.send_raw(unknown)
        assert code_of(await worker.answer_to(unknown["id"])) == "E.CMD.UNKNOWN"
        ours = await worker.send("cmd.drain", {})
        assert code_of(await worker.answer_to(ours)) == "E.CMD.UNKNOWN"
        broken = worker.frame("register", {"capabilities": {"node_types": "all"}})
        await worker.send_raw(broken)
        answer = await worker.answer_to(broken["id"])
        assert code_of(answer) == "E.PROTOCOL.MALFORMED"
        assert "node_types" in answer["payload"]["message"]
        assert (await worker.register())["type"] == "ack"  # the socket lives


@pytest.mark.parametrize("forged", ["tenant", "sender"])
async def test_a_frame_in_another_name_ends_the_session(lab: Lab, admin: LiveUser, forged: str):
    async with lab.worker() as worker:
        frame = worker.frame("heartbeat", {})
        if forged == "tenant":
            frame["tenant"] = admin.name
        else:
            frame["sender"] = {"role": "worker", "id": str(uuid4())}
        await worker.send_raw(frame)
        assert code_of(await worker.answer_to(frame["id"])) == "E.SESSION.DENIED"
        assert (await worker.ended()).code == 4400
    rows = lab.query(
        "SELECT detail->>'reason' FROM audit_log WHERE action = 'worker.forged_identity'"
        " AND actor_id = %s", worker.worker_id,
    )  # fmt: skip
    assert rows == [(f"{forged} is not the token's",)]


async def test_a_worker_without_consent_gets_nowhere(lab: Lab, admin: LiveUser):
    """Asked for somebody else's group, whose Admins have not answered."""
    token, worker_id = lab.enrol(groups=[admin.name])
    async with schema_worker.session(lab.live.url, token, admin.name, worker_id) as worker:
        answer = await worker.handshake()
        assert code_of(answer) == "E.SESSION.DENIED"
        assert "accepted" in answer["payload"]["message"]


async def test_tokens_decide_who_may_open_and_stay(lab: Lab):
    independent = lab.user.post("/workers", {"tags": [], "labels": [], "groups": []})
    for token in ("garbage", independent["token"]):
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with schema_worker.session(lab.live.url, token, "x", str(uuid4())):
                pass
        assert refused.value.response.status_code == 401
    enrolled = lab.enrol()
    async with lab.worker(enrolled=enrolled) as worker:
        new = lab.user.post(f"/workers/{enrolled[1]}/token", {})["token"]
        said = await worker.next("error")
        assert said["payload"]["code"] == "E.AUTH.INVALID_TOKEN"
        assert (await worker.ended()).code == 4401
    with pytest.raises(websockets.InvalidStatus):
        async with schema_worker.session(lab.live.url, enrolled[0], "x", enrolled[1]):
            pass
    async with lab.worker(enrolled=(new, enrolled[1])) as worker:
        assert lab.user.http.delete(f"/workers/{enrolled[1]}?op=Force").status_code == 200
        assert (await worker.ended()).code == 4401


# --- order and repetition -------------------------------------------------------------------


async def test_repeated_messages_act_once_and_are_acked_again(lab: Lab):
    async with lab.worker() as worker:
        uuid = lab.user.submit()
        dispatch = await worker.next("cmd.dispatch")
        said = {"task_id": dispatch["payload"]["task_id"], "status": "succeeded"}
        result = worker.frame("result", said, corr=corr(dispatch), seq=1, ack={"request": True})
        for _ in range(2):
            await worker.send_raw(result)
            assert (await worker.answer_to(result["id"]))["payload"]["answer"] == "ok"
        # The same number under a new id, and with another outcome: the first one counts.
        again = await worker.result(dispatch, status="failed")
        assert (again["type"], again["payload"]["duplicate"]) == ("ack", True)
        assert lab.ends(uuid)["outcome"] == "succeeded"
        assert lab.runs_of(uuid) == 1


async def test_a_gap_is_named_and_the_stream_goes_on_from_there(lab: Lab):
    async with lab.worker() as worker:
        uuid = lab.user.submit()
        dispatch = await worker.next("cmd.dispatch")
        early = await worker.result(dispatch, seq=3)
        assert code_of(early) == "E.RESULT.SEQ_GAP"
        assert early["payload"]["expect"] == 1
        assert lab.info(uuid)["outcome"] is None
        late = await worker.ask(
            "feedback", feedback(dispatch, stage="a"), corr=corr(dispatch), seq=1
        )
        assert late["type"] == "ack"
        assert code_of(await worker.result(dispatch, seq=3)) == "E.RESULT.SEQ_GAP"
        await worker.ask("feedback", feedback(dispatch, stage="b"), corr=corr(dispatch), seq=2)
        assert (await worker.result(dispatch, seq=3))["payload"]["answer"] == "ok"
        assert lab.ends(uuid)["outcome"] == "succeeded"


async def test_a_dispatch_is_repeated_until_it_is_acked(lab: Lab):
    async with lab.worker() as worker:
        worker.acks_commands = False
        lab.user.submit()
        first = await worker.next("cmd.dispatch")
        second = await worker.next("cmd.dispatch")
        assert (first["id"], first["seq"]) == (second["id"], second["seq"])
        await worker.send("ack", {"for": first["id"]}, corr=first["corr"])
        assert (await worker.result(first))["payload"]["answer"] == "ok"
        # Nothing more: an acked message is not repeated, and nobody was given it twice.
        assert not [
            frame for frame in worker.inbox if frame["seq"] != 1 or frame["id"] != first["id"]
        ]


async def test_a_worker_that_never_acks_loses_its_session_but_not_the_task(lab: Lab):
    """No requeue before its own word: the next register does not name the attempt."""
    enrolled = lab.enrol()
    async with lab.worker(enrolled=enrolled) as worker:
        worker.acks_commands = False
        uuid = lab.user.submit()
        sent = [await worker.next("cmd.dispatch") for _ in range(6)]
        assert len({frame["id"] for frame in sent}) == 1
        assert code_of(await worker.next("error")) == "E.DISPATCH.UNAVAILABLE"
        await worker.ended()
        assert lab.query("SELECT state FROM active_tasks WHERE uuid = %s", uuid) == [(2,)]
    async with lab.worker(enrolled=enrolled) as worker:
        dispatch = await worker.next("cmd.dispatch")
        assert dispatch["payload"]["task_uuid"] == uuid
        assert dispatch["payload"]["attempt"] == 2
        assert (await worker.result(dispatch))["payload"]["answer"] == "ok"
    assert lab.info(uuid)["failures"] == 0  # it was never begun


# --- reconnection and leases ----------------------------------------------------------------


async def test_a_reconnect_keeps_what_is_named_and_requeues_the_rest(lab: Lab):
    enrolled = lab.enrol()
    async with lab.worker(enrolled=enrolled, parallel=2) as worker:
        kept, dropped = lab.user.submit(), lab.user.submit()
        both = {(await worker.next("cmd.dispatch"))["payload"]["task_uuid"] for _ in range(2)}
        assert both == {kept, dropped}
        frames = [frame for who, frame in worker.transcript if frame["type"] == "cmd.dispatch"]
        held = next(f for f in frames if f["payload"]["task_uuid"] == kept)
        await worker.ask("feedback", feedback(held, stage="x"), corr=corr(held), seq=1)
    token, worker_id = enrolled
    async with schema_worker.session(lab.live.url, token, lab.user.name, worker_id) as worker:
        await worker.handshake()
        inventory = [{"task_id": held["payload"]["task_id"], "next_seq": 2}]
        answer = (await worker.register(parallel=2, inventory=inventory))["payload"]["held"]
        assert answer["kept"] == [held["payload"]["task_id"]]
        assert len(answer["missing"]) == 1
        again = await worker.next("cmd.dispatch")
        assert (again["payload"]["task_uuid"], again["payload"]["attempt"]) == (dropped, 2)
        assert code_of(await worker.result(held, seq=4)) == "E.RESULT.SEQ_GAP"
        assert (await worker.result(held, seq=2))["payload"]["answer"] == "ok"
        assert (await worker.result(again))["payload"]["answer"] == "ok"
    assert (lab.runs_of(kept), lab.runs_of(dropped)) == (1, 2)


async def test_a_newer_session_fences_the_older_one(lab: Lab):
    enrolled = lab.enrol()
    async with lab.worker(enrolled=enrolled) as old:
        uuid = lab.user.submit()
        dispatch = await old.next("cmd.dispatch")
        held = [{"task_id": dispatch["payload"]["task_id"]}]
        async with lab.worker(enrolled=enrolled, inventory=held) as new:
            assert code_of(await old.next("error")) == "E.SESSION.SUPERSEDED"
            assert (await old.ended()).code == 4409
            assert (await new.result(dispatch))["payload"]["answer"] == "ok"
    assert lab.ends(uuid)["attempt"] == 1


async def test_after_a_lost_lease_the_late_result_is_stale_and_counts_for_nothing(lab: Lab):
    enrolled = lab.enrol()
    async with lab.worker(("slow",), enrolled=enrolled) as worker:
        uuid = lab.user.submit(task_spec={"args": [], "node": {"type": "slow"}})
        dispatch = await worker.next("cmd.dispatch")
        await worker.stop_beating()
        # The ladder ends the silent session, the lease gives the task to somebody else.
        async with lab.worker(("slow",)) as other:
            assert code_of(await worker.next("error", 60)) == "E.TIMEOUT"
            again = await other.next("cmd.dispatch", 60)
            assert (again["payload"]["task_uuid"], again["payload"]["attempt"]) == (uuid, 2)
            async with lab.worker(("slow",), enrolled=enrolled) as returned:
                late = await returned.result(dispatch, status="failed")
                assert code_of(late) == "E.SESSION.STALE_BINDING"
            assert (await other.result(again))["payload"]["answer"] == "ok"
    ended = lab.ends(uuid)
    assert (ended["outcome"], ended["attempt"], ended["failures"]) == ("succeeded", 2, 1)


async def test_a_late_result_counts_when_nobody_was_given_the_task_since(lab: Lab):
    """The lease ran out and the task went back to the queue; its worker comes back with it."""
    enrolled = lab.enrol()
    async with lab.worker(("rare",), enrolled=enrolled) as worker:
        uuid = lab.user.submit(task_spec={"args": [], "node": {"type": "rare"}})
        dispatch = await worker.next("cmd.dispatch")
        await worker.stop_beating()
        assert code_of(await worker.next("error", 60)) == "E.TIMEOUT"
    state = "SELECT runner_id FROM active_tasks WHERE uuid = %s"
    await in_thread(eventually, lambda: lab.query(state, uuid) == [(None,)], within_s=60)
    token, worker_id = enrolled
    async with schema_worker.session(lab.live.url, token, lab.user.name, worker_id) as worker:
        await worker.handshake()
        held = [{"task_id": dispatch["payload"]["task_id"]}]
        answer = await worker.register(("rare",), inventory=held)
        assert answer["payload"]["held"]["adopted"] == [dispatch["payload"]["task_id"]]
        assert (await worker.result(dispatch))["payload"]["answer"] == "ok"
    assert (lab.ends(uuid)["outcome"], lab.runs_of(uuid)) == ("succeeded", 1)


# --- who gets what --------------------------------------------------------------------------


async def test_one_concurrency_key_is_never_run_twice_at_a_time(lab: Lab):
    async with lab.worker(parallel=4) as one, lab.worker(parallel=4) as two:
        tasks = [lab.user.submit(concurrency_key="k") for _ in range(4)]
        done: set[str] = set()
        for _ in tasks:
            waits = [asyncio.create_task(side.next("cmd.dispatch")) for side in (one, two)]
            ready, idle = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in idle:
                wait.cancel()
            assert len(ready) == 1, "two workers run the same key"
            dispatch = ready.pop().result()
            [(held,)] = lab.query(
                "SELECT count(*) FROM active_tasks WHERE concurrency_key = 'k'"
                " AND runner_id IS NOT NULL AND uuid = ANY (%s::uuid[])", tasks,
            )  # fmt: skip
            assert held == 1
            side = one if waits[0].done() and not waits[0].cancelled() else two
            assert (await side.result(dispatch))["type"] == "ack"
            done.add(dispatch["payload"]["task_uuid"])
        assert done == set(tasks)


async def test_refusals_of_a_worker_send_the_task_on(lab: Lab):
    """E.CMD.UNKNOWN excludes it, a concurrency violation only postpones; both are free."""
    async with lab.worker(("a",)) as worker:
        worker.acks_commands = False
        busy = lab.user.submit(task_spec={"args": [], "node": {"type": "a"}})
        dispatch = await worker.next("cmd.dispatch")
        said = {"code": "E.CMD.CONCURRENCY_VIOLATION", "for": dispatch["id"]}
        await worker.send("error", said, corr=corr(dispatch))
        again = await worker.next(
            lambda f: f["type"] == "cmd.dispatch" and f["payload"]["attempt"] == 2
        )
        said = {"code": "E.CMD.UNKNOWN", "for": again["id"]}
        await worker.send("error", said, corr=corr(again))
        async with lab.worker(("a",)) as other:
            third = await other.next("cmd.dispatch")
            assert third["payload"]["attempt"] == 3
            assert (await other.result(third))["type"] == "ack"
    assert lab.ends(busy)["failures"] == 0
    codes = [outcome for outcome, _ in lab.audit("cmd.dispatch")]
    assert codes == ["E.CMD.CONCURRENCY_VIOLATION", "E.CMD.UNKNOWN", "ok"]


async def test_node_types_affinity_and_resources_lead_to_their_worker(lab: Lab):
    enrolled = lab.enrol()
    async with (
        lab.worker(("model",), parallel=2) as one,
        lab.worker(("model", "command"), enrolled=enrolled, parallel=2) as two,
    ):
        call = {"args": [], "node": {"type": "model", "parameters": {"x": [1]}}}
        plain = lab.user.submit()
        dispatch = await two.next("cmd.dispatch")
        assert (dispatch["payload"]["task_uuid"], one.inbox) == (plain, [])
        left = {
            "resource_id": "session-1", "worker_id": enrolled[1], "type": "browser",
            "metadata": {"tabs": 3},
        }  # fmt: skip
        await two.result(dispatch, artifacts=[left])
        listed = lab.user.http.get(f"/workers/{enrolled[1]}/resources").json()["resources"]
        assert [(row["resource_id"], row["task_uuid"]) for row in listed] == [("session-1", plain)]
        pinned = lab.user.submit(
            task_spec=call, resource_refs=[left], affinity={"key": "s"},
            middleware={"host_node_id": "h", "middleware_chain": ["m1"], "chain_index": 0},
        )  # fmt: skip
        dispatch = await two.next("cmd.dispatch")
        said = dispatch["payload"]
        assert (said["task_uuid"], said["parameters"]) == (pinned, {"x": [1]})
        assert said["resource_refs"][0]["resource_id"] == "session-1"
        assert (said["host_node_id"], said["chain_index"]) == ("h", 0)
        await two.result(dispatch)
        # The key now belongs to `two`, although `one` could run all of them as well.
        sticky = {lab.user.submit(task_spec=call, affinity={"key": "s"}) for _ in range(4)}
        for _ in range(4):
            dispatch = await two.next("cmd.dispatch")
            sticky.discard(dispatch["payload"]["task_uuid"])
            await two.result(dispatch)
        assert (sticky, one.inbox) == (set(), [])
        gone = {**left, "resource_id": "session-2"}
        body = {
            "group_name": lab.user.name, "tags": [], "labels": [], "timeout": "1m",
            "priority": 0, "task_spec": call, "resource_refs": [gone],
        }  # fmt: skip
        refused = lab.user.http.post("/tasks", json=body)
        assert (refused.status_code, "session-2" in refused.text) == (400, True)


async def test_pressure_drains_and_its_end_brings_work_again(lab: Lab):
    async with lab.worker() as worker:
        await worker.stop_beating()
        await worker.ask("heartbeat", {"mem_pct": 93.5})
        drain = await worker.next("cmd.drain")
        assert "memory" in drain["payload"]["reason"]
        uuid = lab.user.submit()
        await worker.ask("heartbeat", {"mem_pct": 93.0, "inflight": []})
        assert lab.info(uuid)["attempt"] == 0
        await worker.ask("heartbeat", {"mem_pct": 50.0, "disk_pct": 94.9})
        assert (await worker.next("cmd.drain"))["payload"]["is_lifted"]
        dispatch = await worker.next("cmd.dispatch")
        worker.keep_beating()
        assert (await worker.result(dispatch))["type"] == "ack"


async def test_a_cancel_reaches_the_worker_and_its_word_ends_the_task(lab: Lab):
    async with lab.worker() as worker:
        uuid = lab.user.submit()
        dispatch = await worker.next("cmd.dispatch")
        assert lab.user.http.delete(f"/tasks/{uuid}").status_code == 200
        order = await worker.next("cmd.cancel")
        assert order["payload"]["task_id"] == dispatch["payload"]["task_id"]
        assert order["payload"].get("why", "cancelled") == "cancelled"
        assert (order["corr"], order["seq"]) == (corr(dispatch), 2)
        await worker.result(dispatch, status="cancelled")
        assert lab.ends(uuid)["outcome"] == "cancelled"


async def test_a_crash_is_charged_and_tried_again(lab: Lab):
    async with lab.worker() as worker:
        uuid = lab.user.submit()
        first = await worker.next("cmd.dispatch")
        answer = await worker.result(first, status="crashed", signal=11)
        assert answer["payload"]["answer"] == "ok"
        second = await worker.next("cmd.dispatch")
        assert second["payload"]["attempt"] == 2
        assert (await worker.result(second))["payload"]["answer"] == "ok"
    ended = lab.ends(uuid)
    assert (ended["outcome"], ended["failures"]) == ("succeeded", 1)


async def test_feedback_reaches_watchers_while_the_task_runs(lab: Lab):
    async with lab.worker() as worker:
        uuid = lab.user.submit(task_spec={"args": ["x"], "terminal_output": True})
        dispatch = await worker.next("cmd.dispatch")
        with lab.user.watch(uuid) as events:
            await in_thread(events.next, "node.state")  # the stream has begun to listen
            await worker.ask(
                "feedback",
                feedback(
                    dispatch, stage="streaming", progress=0.25, metrics={"loss": 1.5},
                    chunks=[
                        {"channel": "llm", "text": "Hel"},
                        {"channel": "stdout", "text": "out\n", "offset": 0},
                    ],
                ),
                corr=corr(dispatch), seq=1,
            )  # fmt: skip
            # The log of events and the live output are two ways: either may be the faster one.
            states: list[Any] = []
            deltas: list[Any] = []
            while not states or len(deltas) < 2:
                heard = await in_thread(events.next)
                if heard["event"] == "node.result.delta":
                    deltas.append(heard["data"])
                elif "stage" in (heard["data"].get("data") or {}):
                    states.append(heard)
            [state] = states
            assert state["event"] == "node.state"
            assert state["data"]["data"] == {
                "stage": "streaming", "progress": 0.25, "metrics": {"loss": 1.5}
            }  # fmt: skip
            chunks = [delta.get("data", {}).get("chunks") for delta in deltas]
            assert [{"channel": "llm", "text": "Hel"}] in chunks
            assert any(delta.get("available") == 4 for delta in deltas)
        assert lab.user.http.get(f"/tasks/{uuid}/logs?stream=stdout").content == b"out\n"
        await worker.result(dispatch, seq=2)
