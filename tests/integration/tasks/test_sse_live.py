"""Event streams, the event log and live output, over the sockets of a running coordinator."""

import asyncio
import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from uuid import UUID, uuid4

import httpx2
import psycopg
import pytest
from channels.layers import channel_layers, get_channel_layer

from tasks.live import watching
from tasks.services.logs import LogStream, append_log_chunk
from tests.e2e.cluster import Cluster
from tests.integration.tasks.live_client import EventReader, LiveUser, LiveWorker, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def admin(live: Cluster) -> Iterator[LiveUser]:
    user = LiveUser(live, *live.admin)
    yield user
    user.http.close()


@pytest.fixture
def ada(live: Cluster, admin: LiveUser) -> Iterator[LiveUser]:
    user = new_user(live, admin)
    yield user
    user.http.close()


@pytest.fixture
def eve(live: Cluster, admin: LiveUser) -> Iterator[LiveUser]:
    user = new_user(live, admin)
    yield user
    user.http.close()


@pytest.fixture
def worker(ada: LiveUser) -> Iterator[LiveWorker]:
    registered = ada.register_worker()
    yield registered
    registered.http.close()


def new_user(live: Cluster, admin: LiveUser) -> LiveUser:
    name, password = f"u{uuid4().hex[:10]}", "correct horse battery"
    digest = list(hashlib.md5(password.encode()).digest())
    answer = admin.http.post(
        "/admin/users", json={"username": name, "md5_password": digest, "admin": False}
    )
    assert answer.status_code == 200, answer.text
    return LiveUser(live, name, password)


def connections(live: Cluster) -> int:
    """Sessions of the coordinator's database that are doing or holding something."""
    with psycopg.connect(live.database_url) as connection:
        [(count,)] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
        ).fetchall()
    return int(count)


def test_the_story_of_a_task_arrives_as_it_happens(ada: LiveUser, worker: LiveWorker) -> None:
    uuid = ada.submit()
    with ada.watch(uuid) as stream:
        assert stream.answer.headers["content-type"] == "text/event-stream"
        assert stream.answer.headers["cache-control"] == "no-store"
        first = stream.next()
        assert (first["event"], first["id"]) == ("node.state", "1")
        assert (first["data"]["kind"], first["data"]["state"]) == ("submitted", "ready")
        task = worker.fetch()
        claimed = stream.next()["data"]
        assert (claimed["kind"], claimed["attempt"]) == ("claimed", 1)
        assert UUID(claimed["runner_uuid"]).version == 4
        worker.commit(task["id"])
        rest = [found["data"]["kind"] for found in stream]  # the server ends the stream
    assert rest[-1] == "ended"


def test_a_reader_that_comes_back_misses_nothing(ada: LiveUser, worker: LiveWorker) -> None:
    uuid = ada.submit()
    with ada.watch(uuid) as stream:
        last = stream.next()["id"]
    task = worker.fetch()
    worker.commit(task["id"])
    with ada.watch(uuid, **{"Last-Event-ID": last}) as stream:
        rest = list(stream)
    assert [found["id"] for found in rest] == ["2", "3", "4"]
    assert rest[-1]["data"]["outcome"] == "succeeded"
    done = ada.http.get(f"/tasks/{uuid}/events", headers={"Last-Event-ID": "4"})
    assert done.status_code == 204  # tells a browser not to come back


@pytest.mark.alone
async def test_watchers_that_come_and_go_leave_nothing_behind(clean_redis: object) -> None:
    channel_layers.backends.clear()
    started = time.monotonic()
    for pause in range(100):
        async with watching(uuid4()):
            await asyncio.sleep(pause % 20 * 0.0002)
    assert time.monotonic() - started < 20  # a swallowed cancellation would hang for seconds each
    layer = get_channel_layer()._get_layer()
    assert (layer.channels, layer.groups) == ({}, {})
    assert layer._shards[0]._subscribed_to == set()
    await layer.flush()
    channel_layers.backends.clear()


def test_bad_and_foreign_streams_are_refused(live: Cluster, ada: LiveUser, eve: LiveUser) -> None:
    uuid = ada.submit()
    path = f"/tasks/{uuid}/events"
    foreign, absent = eve.http.get(path), eve.http.get(f"/tasks/{uuid4()}/events")
    assert foreign.status_code == absent.status_code == 404
    assert foreign.json()["title"] == absent.json()["title"]
    for bad in ("x", "-1", "9999999999", "1.5"):
        answer = ada.http.get(path, headers={"Last-Event-ID": bad})
        assert (answer.status_code, "Last-Event-ID" in answer.json()["msg"]) == (400, True)
    assert httpx2.get(f"{live.url}{path}").status_code == 400
    wrong = {"Authorization": "Bearer nonsense"}
    assert ada.http.get(path, headers=wrong).status_code == 401
    assert ada.http.post(path).status_code == 405


def test_waiting_streams_hold_no_database_connection(live: Cluster, ada: LiveUser) -> None:
    uuids = [ada.submit() for _ in range(30)]
    before = connections(live)
    with ExitStack() as opened:
        readers = [opened.enter_context(ada.watch(uuid)) for uuid in uuids]
        assert [reader.next()["id"] for reader in readers] == ["1"] * 30
        # The async pool has 8 connections at most, however many people watch.
        assert connections(live) <= before + 8
        assert ada.http.get("/auth").status_code == 200


def test_streams_are_limited_per_user_and_readers_who_leave_are_noticed(ada: LiveUser) -> None:
    uuid = ada.submit()
    with ExitStack() as opened:
        readers = [opened.enter_context(ada.watch(uuid)) for _ in range(64)]
        assert [reader.next()["id"] for reader in readers] == ["1"] * 64
        refused = ada.http.get(f"/tasks/{uuid}/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")

    def free_again() -> bool:
        with ada.http.stream("GET", f"/tasks/{uuid}/events") as answer:
            return answer.status_code == 200

    eventually(free_again)


@pytest.mark.alone
def test_a_stream_ends_when_the_reader_may_no_longer_read(
    live: Cluster, admin: LiveUser, ada: LiveUser
) -> None:
    uuid = ada.submit()
    with ada.watch(uuid) as stream:
        stream.next()
        locked = admin.http.post(f"/admin/users/{ada.name}/state", json={"state": "Locked"})
        assert locked.status_code == 200
        started = time.monotonic()
        assert list(stream) == []
        assert time.monotonic() - started < 15


def test_a_browser_session_may_watch(live: Cluster, admin: LiveUser) -> None:
    uuid = admin.submit()
    with httpx2.Client(base_url=live.url, timeout=20) as browser:
        page = browser.get("/admin/login/").text
        token = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
        name, password = live.admin
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token}
        browser.post("/admin/login/", data=form, headers={"Origin": live.url})
        with browser.stream("GET", f"/tasks/{uuid}/events") as answer:
            assert answer.status_code == 200
            assert EventReader(answer).next()["data"]["kind"] == "submitted"
        assert browser.get("/events", params={"cursor": "newest"}).status_code == 200


def test_events_of_the_callers_groups_are_paged_by_cursor(
    ada: LiveUser, eve: LiveUser, worker: LiveWorker
) -> None:
    start = ada.http.get("/events", params={"cursor": "newest"}).json()["cursor"]
    mine, foreign = ada.submit(), eve.submit()
    worker.commit(worker.fetch()["id"])
    seen: list[tuple[str, str]] = []

    def read() -> bool:
        nonlocal start
        page = ada.http.get("/events", params={"cursor": start, "limit": 2}).json()
        start = page["cursor"]
        for event in page["events"]:
            assert event["group_name"] == ada.name
            seen.append((event["task_uuid"], event["kind"]))
        return (mine, "ended") in seen

    eventually(read)
    assert [kind for uuid, kind in seen if uuid == mine] == [
        "submitted",
        "claimed",
        "finishing",
        "ended",
    ]
    assert foreign not in {uuid for uuid, _ in seen}
    for bad in ({"cursor": "x"}, {"cursor": f"{2**60}-1"}, {"limit": "0"}, {"limit": "x"}):
        assert ada.http.get("/events", params=bad).status_code == 400
    assert ada.http.get("/events", params={"cursor": "-" * 5000}).status_code == 400


def append(uuid: str, offset: int, data: bytes, attempt: int = 1) -> None:
    """By this process, which shares the store and the channel layer with the coordinator."""
    asyncio.run(append_log_chunk(UUID(uuid), attempt, LogStream.STDOUT, offset, data))


def test_output_is_announced_and_can_be_read_on(ada: LiveUser, worker: LiveWorker) -> None:
    uuid = ada.submit()
    task = worker.fetch()
    with ada.watch(uuid) as stream:
        stream.next()
        append(uuid, 0, b"hello ")
        delta = stream.next("node.result.delta")
        assert delta["id"] is None
        assert delta["data"] == {"attempt": 1, "stream": "stdout", "available": 6}
    append(uuid, 6, b"world")
    path = f"/tasks/{uuid}/logs"
    part = ada.http.get(path, params={"stream": "stdout"})
    assert (part.text, part.headers["x-next-offset"]) == ("hello world", "11")
    assert part.headers["x-log-complete"] == "false"
    assert part.headers["content-type"] == "text/plain; charset=utf-8"
    assert "sandbox" in part.headers["content-security-policy"]
    assert part.headers["x-content-type-options"] == "nosniff"
    rest = ada.http.get(path, params={"stream": "stdout", "offset": "8"})
    assert (rest.text, rest.headers["x-next-offset"]) == ("rld", "11")
    worker.commit(task["id"])
    end = ada.http.get(path, params={"stream": "stdout", "offset": "11"})
    assert (end.text, end.headers["x-log-complete"]) == ("", "true")
    assert ada.http.get(path, params={"stream": "stderr"}).text == ""
