"""What managers hear at once: a cancel, a pause, a resumption, new work. Through a real Valkey."""

import os
from collections.abc import Iterator

import msgspec
import pytest
import redis
from channels.layers import channel_layers, get_channel_layer

from core import push
from mitosis_protocol.to_manager import TO_MANAGER, ToManager
from suites.models import TaskSuite
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import act, make, ok, submit
from tests.integration.workers.people import Caller

pytestmark = pytest.mark.django_db(transaction=True)


class Ear:
    """Somebody subscribed to the group of one manager."""

    def __init__(self, host: Host) -> None:
        self._client = redis.Redis.from_url(os.environ["REDIS_URL"])
        self._pubsub = self._client.pubsub()
        self._pubsub.subscribe(f"mitosis__group__{push.manager_group(host.uuid)}")
        assert self._pubsub.get_message(timeout=5)["type"] == "subscribe"

    def next(self) -> ToManager:
        for _ in range(100):
            message = self._pubsub.get_message(timeout=0.05)
            if message is not None:
                event = get_channel_layer().deserialize(message["data"])
                return TO_MANAGER.decode(event["frame"].encode())
        raise AssertionError("nothing was heard")

    def close(self) -> None:
        self._pubsub.close()
        self._client.close()


@pytest.fixture
def suite(ada: Caller) -> TaskSuite:
    made = make(ada)
    submit(ada, made)
    return made


@pytest.fixture
def host(ada: Caller, suite: TaskSuite) -> Host:
    assert ada.user is not None
    engaged = Host(ada.user)
    engaged.engage(suite)
    return engaged


@pytest.fixture
def ear(clean_redis: redis.Redis, host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    monkeypatch.setattr(push, "_paused_until", float("-inf"))
    channel_layers.backends.clear()
    listening = Ear(host)
    yield listening
    listening.close()
    channel_layers.backends.clear()


def heard(ear: Ear) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(ear.next())
    return found


def test_the_engaged_manager_hears_of_pause_resume_and_cancel(
    ada: Caller, suite: TaskSuite, ear: Ear
) -> None:
    uuid = str(suite.uuid)
    ok(act(ada, suite, "pause"))
    assert heard(ear) == {"type": "pause", "suite_uuid": uuid}
    ok(act(ada, suite, "resume"))
    assert heard(ear) == {"type": "resume", "suite_uuid": uuid}
    ok(act(ada, suite, "cancel", {"reason": "enough", "cancel_running_tasks": False}))
    assert heard(ear) == {
        "type": "cancel_suite",
        "suite_uuid": uuid,
        "reason": "enough",
        "cancel_running_tasks": False,
    }


def test_the_engaged_manager_hears_of_reruns(
    ada: Caller, suite: TaskSuite, host: Host, ear: Ear
) -> None:
    host.run(1, exit_status=256)
    ok(act(ada, suite, "rerun", {}), 201)
    found = heard(ear)
    assert (found["type"], found["suite_uuid"]) == ("tasks_ready", str(suite.uuid))
