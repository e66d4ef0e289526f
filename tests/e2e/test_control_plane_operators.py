"""What people order of direct workers and see of them, on a real server (control_lab)."""

import asyncio
import hashlib
from typing import Any

import pytest

from tests.e2e.control_lab import Lab, admin_user, lab_of_one, live_cluster
from tests.e2e.schema_worker import SchemaWorker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
live = pytest.fixture(name="live", scope="module")(live_cluster)
admin = pytest.fixture(name="admin", scope="module")(admin_user)
lab = pytest.fixture(name="lab")(lab_of_one)


async def test_the_numbers_of_a_session_are_at_metrics(lab: Lab):
    async with lab.worker() as worker:
        worker.acks_commands = False
        lab.user.submit()
        first = await worker.next("cmd.dispatch")
        await worker.next("cmd.dispatch")  # not acked: said again
        await worker.send("ack", {"for": first["id"]}, corr=first["corr"])
        await worker.result(first)
        assert lab.counted("cmd_retry_total", tenant=None, reason="no_ack") >= 1
        assert lab.counted("ws_conn_active") == 1
        assert lab.counted("cmd_dispatch_total", node_type="command") == 1
        assert lab.counted("result_latency_ms_bucket", node_type="command", le="+Inf") == 1
        for direction in ("in", "out"):
            assert lab.counted("ws_frame_bytes_total", dir=direction) > 500
        await worker.stop_beating()
        assert (await worker.next("error", 60))["payload"]["code"] == "E.TIMEOUT"
    assert lab.counted("ws_heartbeat_miss_total", worker=worker.worker_id) == 3
    assert lab.counted("ws_conn_active") == 0


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({"middleware_chain": ["auth", "cache"]}, {"middlewares": ["auth", "cache"]}),
        (
            {"host_node_id": "h", "middleware_chain": ["auth", "cache"], "chain_index": 1},
            {"host_node_id": "h", "chain_index": 1},
        ),
        (None, None),
    ],
)
async def test_the_place_of_a_node_in_its_chain_is_shown_with_its_state(
    lab: Lab, said: Any, shown: Any
):
    uuid = lab.user.submit(middleware=said)
    assert lab.info(uuid)["middleware"] == shown
    with lab.user.watch(uuid) as events:
        first = await asyncio.to_thread(events.next, "node.state")
    assert first["data"].get("middleware") == shown
    async with lab.worker() as worker:
        await worker.result(await worker.next("cmd.dispatch"))
    assert lab.ends(uuid)["middleware"] == shown


async def test_a_tenant_has_limits_of_its_own_for_full_workers(lab: Lab):
    path = f"/groups/{lab.user.name}/drain-limits"
    limits = {"mem_pct": 60, "disk_pct": None}
    assert lab.user.http.put(path, json=limits).json() == limits
    assert lab.user.http.get(f"/groups/{lab.user.name}").json()["drain_limits"] == limits
    async with lab.worker() as worker:
        [told] = [f for _, f in worker.transcript if "session" in f["payload"]]
        terms = told["payload"]["session"]
        assert (terms["drain_mem_pct"], terms["drain_disk_pct"]) == (60, 95)
        await worker.stop_beating()
        await worker.ask("heartbeat", {"mem_pct": 59.0, "disk_pct": 94.0, "inflight": []})
        dispatched = lab.user.submit()
        dispatch = await worker.next("cmd.dispatch")
        assert dispatch["payload"]["task_uuid"] == dispatched
        await worker.result(dispatch)
        for reason, full in (("memory", {"mem_pct": 60.0}), ("disk", {"disk_pct": 95.0})):
            await worker.ask("heartbeat", {**full, "inflight": []})
            drain = (await worker.next("cmd.drain"))["payload"]
            assert reason in drain["reason"]
            await worker.ask("heartbeat", {"mem_pct": 10.0, "disk_pct": 10.0, "inflight": []})
            assert (await worker.next("cmd.drain"))["payload"]["is_lifted"]
    for odd in (0, 101, "60", 60.5):
        assert lab.user.http.put(path, json={**limits, "mem_pct": odd}).status_code == 422
    [(outcome,)] = lab.query(
        "SELECT outcome FROM audit_log WHERE action = 'group.drain_limits' AND object = %s",
        lab.user.name,
    )
    assert outcome == "ok"


async def test_a_task_whose_resources_left_with_their_worker_fails_instead_of_waiting(lab: Lab):
    enrolled = lab.enrol()
    async with lab.worker(enrolled=enrolled) as worker:
        left = {"resource_id": "session", "worker_id": enrolled[1], "type": "browser"}
        first = lab.user.submit()
        await worker.result(await worker.next("cmd.dispatch"), artifacts=[left])
        lab.ends(first)
        # Busy with something else: the pinned one has to wait for it.
        lab.user.submit()
        await worker.next("cmd.dispatch")
        pinned = lab.user.submit(resource_refs=[left])
        free = lab.user.submit()
    assert lab.user.http.delete(f"/workers/{enrolled[1]}?op=Force").status_code == 200
    ended = lab.ends(pinned)
    assert (ended["outcome"], "resources" in ended["reason"]) == ("failed", True)
    assert lab.info(free)["outcome"] is None


async def the_packages_are_known_at_once(
    lab: Lab, worker: SchemaWorker, installed: dict[str, Any]
) -> None:
    """An event changes the list that orders are checked against; other versions stay."""
    path = f"/workers/{worker.worker_id}/packages"
    for other in ("2", "2"):  # a repetition changes nothing
        assert (await worker.ask("pkg.event", {**installed, "version": other}))["type"] == "ack"
    assert (await worker.ask("pkg.event", {**installed, "version": "3", "status": "failed"}))["id"]
    listed = lab.user.http.get(path).json()["packages"]
    assert sorted((one["name"], one["version"]) for one in listed) == [("tool", "1"), ("tool", "2")]
    assert lab.user.http.delete(f"{path}/other").status_code == 404
    assert lab.user.http.delete(f"{path}/tool?version=3").status_code == 404
    assert lab.user.http.delete(f"{path}/tool").status_code == 400  # which one?
    made = lab.user.http.delete(f"{path}/tool?version=1").json()
    order = (await worker.next("pkg.uninstall"))["payload"]
    assert (order["op_id"], order["name"], order["version"]) == (made["op_id"], "tool", "1")
    removed = {**installed, "op_id": order["op_id"], "op": "uninstall", "status": "removed"}
    assert (await worker.ask("pkg.event", removed))["type"] == "ack"
    assert [one["version"] for one in lab.user.http.get(path).json()["packages"]] == ["2"]


async def test_packages_are_ordered_by_admins_and_answered_by_events(lab: Lab):
    enrolled = lab.enrol()
    allow = {"capabilities": {"allow_packages": True}}
    async with lab.worker(enrolled=enrolled, **allow) as worker:
        key = {"key": "tool.tar", "content_length": 3, "sha256": hashlib.sha256(b"abc").hexdigest()}
        lab.user.post(f"/groups/{lab.user.name}/attachments", key)
        order = {"name": "tool", "version": "1", "attachment_key": "tool.tar"}
        made = lab.user.post(f"/workers/{enrolled[1]}/packages", order, 202)
        install = (await worker.next("pkg.install"))["payload"]
        assert (install["op_id"], install["sha256"]) == (made["op_id"], key["sha256"])
        event = {
            "op_id": made["op_id"], "op": "install", "name": "tool", "version": "1",
            "status": "installed",
        }  # fmt: skip
        assert (await worker.ask("pkg.event", event))["type"] == "ack"
        await the_packages_are_known_at_once(lab, worker, event)
    [(_, ordered)] = lab.audit("package.install")
    (outcome, told), *_ = lab.audit("package.install.installed")
    assert (ordered["corr"], told["corr"], outcome) == (made["op_id"], made["op_id"], "ok")
    async with lab.worker(enrolled=enrolled):
        refused = lab.user.http.post(f"/workers/{enrolled[1]}/packages", json=order)
        assert (refused.status_code, "allow-packages" in refused.text) == (400, True)
