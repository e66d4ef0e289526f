"""Tasks of a suite through the task routes: batches, arrays, defaults, repetition and hints."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import redis
from channels.layers import channel_layers

from core import push
from mitosis_protocol.enums import SuiteState
from suites.models import TaskSuite
from suites.services.lifecycle import move_suite
from tasks.models import ActiveTask
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import make
from tests.integration.tasks.api_world import Caller, ok, refused, submit, task


@pytest.fixture
def suite(ada: Caller) -> TaskSuite:
    return make(ada)


class Listener:
    """What is published for one manager, on a connection of its own."""

    def __init__(self, group: str) -> None:
        self._client = redis.Redis.from_url(os.environ["REDIS_URL"])
        self._pubsub = self._client.pubsub()
        self._pubsub.subscribe(f"mitosis__group__{group}")
        assert self._pubsub.get_message(timeout=5)["type"] == "subscribe"

    def next(self) -> dict[str, Any]:
        message = self._pubsub.get_message(timeout=5)
        assert message is not None, "nothing was pushed"
        event = msgspec.msgpack.decode(message["data"])
        found: dict[str, Any] = msgspec.json.decode(event["frame"])
        return found

    def close(self) -> None:
        self._pubsub.close()
        self._client.close()


@pytest.fixture
def _fresh_layer(clean_redis: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(push, "_paused_until", float("-inf"))
    channel_layers.backends.clear()
    yield
    channel_layers.backends.clear()


@pytest.mark.django_db
def test_a_batch_goes_to_several_suites_and_none(ada: Caller, suite: TaskSuite) -> None:
    cancelled = make(ada)
    move_suite(cancelled.pk, SuiteState.CANCELLED)
    uuids = (str(suite.uuid), str(cancelled.uuid), str(uuid4()), None)
    body = {"tasks": [task(suite_uuid=uuid) for uuid in uuids]}
    results = ok(ada.call("POST", "/tasks/submit", body))["results"]
    assert [next(iter(result)) for result in results] == ["Ok", "Err", "Err", "Ok"]
    assert "cancelled" in results[1]["Err"]["msg"]
    assert "not found" in results[2]["Err"]["msg"]
    assert list(ActiveTask.objects.order_by("id").values_list("suite_id", flat=True)) in (
        [suite.pk, None],
        [None, suite.pk],
    )


@pytest.mark.django_db
def test_an_array_goes_to_a_suite_and_reopens_it(ada: Caller, suite: TaskSuite) -> None:
    move_suite(suite.pk, SuiteState.CLOSED)
    body = {"template": task(suite_uuid=str(suite.uuid)), "rows": [{}, {"depends_on": [0]}]}
    made = ok(ada.call("POST", "/tasks/array", body), 201)
    assert made["suite_uuid"] == str(suite.uuid)
    suite.refresh_from_db()
    assert suite.state is SuiteState.OPEN
    assert ActiveTask.objects.filter(suite_id=suite.pk).count() == 2


@pytest.mark.django_db
def test_a_repeated_submit_reopens_nothing(ada: Caller, suite: TaskSuite) -> None:
    body, headers = task(suite_uuid=str(suite.uuid)), {"idempotency-key": "once"}
    first = ok(ada.call("POST", "/tasks", body, **headers))
    move_suite(suite.pk, SuiteState.CLOSED)
    assert ok(ada.call("POST", "/tasks", body, **headers)) == first
    suite.refresh_from_db()
    assert (suite.state, suite.submit_count) == (SuiteState.CLOSED, 1)


@pytest.mark.django_db
def test_a_task_takes_from_its_suite_what_it_leaves_open(ada: Caller) -> None:
    suite = make(
        ada,
        limits={"memory": 2**30, "pids": 10},
        retry={"max_failures": 2, "retry_on": {"exit_codes": [75]}},
    )
    where = {"suite_uuid": str(suite.uuid)}
    bare = ActiveTask.objects.get(uuid=submit(ada, **where))
    assert (bare.limits, bare.max_failures) == ({"memory": 2**30, "pids": 10}, 2)
    assert bare.retry_on["exit_codes"] == [75]
    own = ActiveTask.objects.get(
        uuid=submit(ada, **where, limits={"cpus": 1}, retry={"max_failures": 9})
    )
    assert (own.limits, own.max_failures) == ({"cpus": 1.0}, 9)
    assert own.retry_on["exit_codes"] == [75]


@pytest.mark.django_db
def test_filters_and_cancels_by_suite(ada: Caller, suite: TaskSuite) -> None:
    inside, outside = submit(ada, suite_uuid=str(suite.uuid)), submit(ada)
    found = ok(ada.call("POST", "/tasks/query", {"count": False, "suite_uuid": str(suite.uuid)}))
    assert [(item["uuid"], item["suite_uuid"]) for item in found["tasks"]] == [
        (str(inside), str(suite.uuid))
    ]
    answer = ok(ada.call("POST", "/tasks/cancel", {"suite_uuid": str(suite.uuid)}))
    assert answer["cancelled_count"] == 1
    assert ActiveTask.objects.get().uuid == outside


@pytest.mark.django_db
def test_a_suites_task_depends_on_tasks_of_its_own_suite_only(
    ada: Caller, suite: TaskSuite
) -> None:
    outside = submit(ada)
    body = task(suite_uuid=str(suite.uuid), depends_on=[str(outside)])
    refused(ada.call("POST", "/tasks", body), 400, str(outside), "suite")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_fresh_layer")
def test_an_engaged_manager_hears_of_new_work_and_of_cancels(ada: Caller, suite: TaskSuite) -> None:
    assert ada.user is not None
    host = Host(ada.user)
    submit(ada, suite_uuid=str(suite.uuid))
    host.engage(suite)
    listener = Listener(push.manager_group(host.uuid))
    try:
        submit(ada, suite_uuid=str(suite.uuid))
        assert listener.next() == {
            "type": "tasks_ready",
            "suite_uuid": str(suite.uuid),
            "kind": "submitted",
        }
        [claimed] = host.claim()
        assert ada.call("DELETE", f"/tasks/{claimed.uuid}").status_code == 200
        order = listener.next()
        assert (order["type"], order["task_uuid"]) == ("cancel_task", str(claimed.uuid))
    finally:
        listener.close()
