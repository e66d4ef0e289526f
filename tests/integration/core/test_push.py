"""Pushes over a real Valkey: after commit, never without it, never at the caller's cost."""

import asyncio
import os
import re
import socket
import time
from uuid import uuid4

import msgspec
import pytest
import redis
from asgiref.sync import sync_to_async
from channels.layers import channel_layers, get_channel_layer
from django.db import connection, transaction
from structlog.testing import capture_logs

from core import push
from mitosis_protocol.limits import MAX_FRAME_BYTES


class Hint(msgspec.Struct, tag="hint", tag_field="type"):
    text: str = ""
    attempt: int = 0


@pytest.fixture(autouse=True)
def _fresh_layer(clean_redis, monkeypatch):
    """Each test has an event loop of its own, so each gets a layer of its own."""
    monkeypatch.setattr(push, "_paused_until", float("-inf"))
    channel_layers.backends.clear()
    yield
    channel_layers.backends.clear()


@pytest.fixture
def uuid():
    return uuid4()


class Listener:
    """Somebody else's connection to Valkey, subscribed to the group of a runner."""

    def __init__(self, group: str) -> None:
        client = redis.Redis.from_url(os.environ["REDIS_URL"])
        self._pubsub = client.pubsub()
        self._pubsub.subscribe(f"mitosis__group__{group}")
        # From this answer on nothing published can be missed.
        assert self._pubsub.get_message(timeout=5)["type"] == "subscribe"
        self._client = client

    def next(self, timeout: float = 5):
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            message = self._pubsub.get_message(timeout=0.05)
            if message is not None:
                return get_channel_layer().deserialize(message["data"])
        return None

    def close(self) -> None:
        self._pubsub.close()
        self._client.close()


@pytest.fixture
def listen():
    opened: list[Listener] = []

    def start(group: str) -> Listener:
        opened.append(Listener(group))
        return opened[-1]

    yield start
    for listener in opened:
        listener.close()


def frame(event):
    assert set(event) == {"type", "frame"}
    return msgspec.json.decode(event["frame"])


def test_a_hint_leaves_with_the_commit_and_not_before(transactional_db, listen, uuid):
    listener = listen(push.manager_group(uuid))
    with transaction.atomic():
        push.to_manager_on_commit(uuid, Hint("x", 3))
        assert listener.next(0.2) is None
    event = listener.next()
    assert event["type"] == "manager.push"
    assert frame(event) == {"type": "hint", "text": "x", "attempt": 3}


def test_a_rolled_back_transaction_pushes_nothing(transactional_db, listen, uuid):
    listener = listen(push.manager_group(uuid))
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        _push_and_fail(uuid)
    assert listener.next(0.3) is None


def _push_and_fail(uuid):
    push.to_manager_on_commit(uuid, Hint())
    raise ZeroDivisionError


def test_outside_a_transaction_a_hint_leaves_at_once(transactional_db, listen, uuid):
    listener = listen(push.manager_group(uuid))
    push.to_manager_on_commit(uuid, Hint("now"))
    assert frame(listener.next())["text"] == "now"


def test_the_message_is_encoded_when_the_push_is_asked_for(transactional_db, listen, uuid):
    listener = listen(push.manager_group(uuid))
    message = Hint("before")
    with transaction.atomic():
        push.to_manager_on_commit(uuid, message)
        message.text = "after"
    assert frame(listener.next())["text"] == "before"


def test_a_message_that_cannot_be_sent_fails_at_its_author(transactional_db, uuid):
    class Bad(msgspec.Struct):
        thing: object

    with pytest.raises(TypeError):
        push.to_manager_on_commit(uuid, Bad(thing=object()))
    with pytest.raises(ValueError, match="does not fit a frame"):
        push.to_manager_on_commit(uuid, Hint("x" * MAX_FRAME_BYTES))


def test_each_audience_has_its_group(transactional_db, listen, uuid):
    first, second = uuid4(), uuid4()
    listeners = [listen(push.manager_group(u)) for u in (first, second)]
    everybody, worker = listen(push.ALL_MANAGERS), listen(push.worker_group(uuid))
    push.to_managers_on_commit([first, second], Hint("both"))
    push.broadcast_on_commit(Hint("all"))
    push.to_worker_on_commit(uuid, Hint("one"))
    assert [frame(listener.next())["text"] for listener in listeners] == ["both", "both"]
    assert frame(everybody.next())["text"] == "all"
    event = worker.next()
    assert (event["type"], frame(event)["text"]) == ("worker.push", "one")
    push.to_managers_on_commit([], Hint("nobody"))


async def test_a_consumer_on_the_loop_receives_what_a_sync_view_pushed(transactional_db, uuid):
    layer = get_channel_layer()
    channel = await layer.new_channel()
    await layer.group_add(push.manager_group(uuid), channel)
    await sync_to_async(_commit_a_push)(uuid)
    event = await asyncio.wait_for(layer.receive(channel), 5)
    assert frame(event)["text"] == "from a view"
    await layer.flush()


def _commit_a_push(uuid):
    with transaction.atomic():
        push.to_manager_on_commit(uuid, Hint("from a view"))
    connection.close()


async def test_async_code_pushes_without_a_transaction(uuid):
    layer = get_channel_layer()
    channel = await layer.new_channel()
    for group in (push.manager_group(uuid), push.worker_group(uuid), push.ALL_MANAGERS):
        await layer.group_add(group, channel)
    await push.push_to_manager(uuid, Hint("1"))
    await push.push_to_managers([uuid], Hint("2"))
    await push.push_to_worker(uuid, Hint("3"))
    await push.push_broadcast(Hint("4"))
    events = [await asyncio.wait_for(layer.receive(channel), 5) for _ in range(4)]
    assert [frame(event)["text"] for event in events] == ["1", "2", "3", "4"]
    await layer.flush()


def layer_at(settings, address):
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": [{"address": address}], "prefix": "mitosis"},
        }
    }
    channel_layers.backends.clear()


@pytest.fixture
def dead_layer(settings):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    layer_at(settings, f"redis://127.0.0.1:{port}/0")


@pytest.fixture
def hung_layer(settings):
    """Accepts connections and never answers, as a stopped Redis does."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        layer_at(settings, f"redis://127.0.0.1:{server.getsockname()[1]}/0")
        yield


def test_a_dead_channel_layer_is_logged_and_the_transaction_stands(
    transactional_db, dead_layer, uuid
):
    with capture_logs() as logs, transaction.atomic():
        push.to_manager_on_commit(uuid, Hint("secret text"))
    assert [entry["event"] for entry in logs] == ["push.lost"]
    assert "secret text" not in repr(logs)


@pytest.mark.alone
def test_a_hung_channel_layer_costs_a_bounded_wait_and_only_once(
    transactional_db, hung_layer, uuid
):
    started = time.monotonic()
    with capture_logs() as logs:
        for _ in range(20):
            push.to_manager_on_commit(uuid, Hint())
    assert time.monotonic() - started < push.SEND_TIMEOUT_S + 1
    assert [entry["event"] for entry in logs] == ["push.lost", *["push.skipped"] * 19]


async def test_async_callers_are_spared_too(dead_layer, uuid):
    with capture_logs() as logs:
        await push.push_to_manager(uuid, Hint())
    assert [entry["event"] for entry in logs] == ["push.lost"]
    await get_channel_layer().flush()


def test_pushes_resume_when_the_layer_is_back(
    transactional_db, settings, listen, uuid, monkeypatch
):
    monkeypatch.setattr(push, "PAUSE_AFTER_FAILURE_S", 0.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    alive = settings.CHANNEL_LAYERS
    layer_at(settings, f"redis://127.0.0.1:{port}/0")
    push.to_manager_on_commit(uuid, Hint("lost"))
    settings.CHANNEL_LAYERS = alive
    channel_layers.backends.clear()
    listener = listen(push.manager_group(uuid))
    push.to_manager_on_commit(uuid, Hint("found"))
    assert frame(listener.next())["text"] == "found"


def test_without_a_channel_layer_nothing_is_sent_and_nothing_fails(
    transactional_db, settings, uuid
):
    settings.CHANNEL_LAYERS = {}
    channel_layers.backends.clear()
    with capture_logs() as logs:
        push.to_manager_on_commit(uuid, Hint())
    assert [entry["event"] for entry in logs] == ["push.skipped"]


def test_group_names_are_valid_for_the_layer(uuid):
    for group in (push.manager_group(uuid), push.worker_group(uuid), push.ALL_MANAGERS):
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,99}", group)
