"""What a direct worker counts, and how it is read."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mitosis_protocol.control_payloads import Result
from mitosis_stack.ports import pick_free
from nodeagent.direct import events as ev
from nodeagent.direct.exposition import serve
from nodeagent.direct.numbers import Numbers
from nodeagent.errors import ConfigInvalid
from tests.fakes.direct_world import World


def samples(page: str) -> dict[tuple[str, str], float]:
    """By name and the bucket's bound, if it has one."""
    return {
        (sample.name, sample.labels.get("le", "")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def page_of(world: World) -> dict[tuple[str, str], float]:
    machine = world.machine
    return samples(machine.numbers.page(inflight=len(machine.hand.dispatches)))


def test_a_task_is_counted_from_its_start_to_its_result():
    world = World()
    world.connect()
    world.hold(1)
    assert page_of(world)["inflight_tasks", ""] == 1
    world.later(0.3)
    world.do(ev.Ended(Result(task_id=1, status="succeeded")))
    found = page_of(world)
    assert found["task_duration_ms_bucket", "250"] == 0
    assert found["task_duration_ms_bucket", "500"] == 1
    assert found["task_duration_ms_bucket", "+Inf"] == found["task_duration_ms_count", ""] == 1
    assert found["heartbeat_sent_total", ""] >= 1
    assert found["heartbeat_degraded_total", ""] == 0


def test_a_task_that_was_handed_back_or_revoked_has_no_length():
    world = World(max_parallel=2)
    world.connect()
    world.hold(1)
    world.hold(2)
    world.do(ev.HandedBack(1, "leaving"))
    world.do(ev.Ended(Result(task_id=1, status="succeeded")))
    assert ("task_duration_ms_count", "") not in page_of(world)


def test_beats_under_pressure_are_degraded():
    world = World()
    world.connect()
    world.do(ev.Measured(95.0, 10.0))
    assert page_of(world)["heartbeat_degraded_total", ""] == 1


async def ask(port: int, request: bytes) -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    data = await reader.read()
    writer.close()
    head, _, body = data.partition(b"\r\n\r\n")
    return head.partition(b"\r\n")[0], body


async def test_the_page_is_served_and_nothing_else():
    [port] = pick_free(["metrics"], {}).values()
    address = ("127.0.0.1", port)
    async with serve(address, lambda: Numbers().page(inflight=3)):
        status, body = await ask(port, b"GET /metrics?x HTTP/1.1\r\n\r\n")
        assert (status, samples(body.decode())["inflight_tasks", ""]) == (b"HTTP/1.1 200 OK", 3)
        for request, expected in (
            (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
            (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
            (b"x" * 20_000, b""),
        ):
            assert await ask(port, request) == (expected, b"")
        with pytest.raises(ConfigInvalid, match="metrics_listen"):
            async with serve(address, lambda: ""):
                pass


async def test_without_an_address_nobody_listens():
    before = set(asyncio.all_tasks())
    async with serve(None, lambda: ""):
        assert set(asyncio.all_tasks()) == before
