"""The event stream of a suite, over the sockets of a running coordinator."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from tests.e2e.cluster import Cluster
from tests.integration.tasks.live_client import EventReader, LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def admin(live: Cluster) -> Iterator[LiveUser]:
    user = LiveUser(live, *live.admin)
    yield user
    user.http.close()


@pytest.fixture
def suite(admin: LiveUser) -> str:
    body = {"group_name": admin.name, "worker_schedule": {"worker_count": 1}}
    return str(admin.post("/suites", body, 201)["uuid"])


@contextmanager
def watch(user: LiveUser, suite: str, **headers: str) -> Iterator[EventReader]:
    with user.http.stream("GET", f"/suites/{suite}/events", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        yield EventReader(answer)


def test_steps_of_tasks_and_numbers_of_the_suite_arrive_as_they_happen(
    admin: LiveUser, suite: str
) -> None:
    with watch(admin, suite) as stream:
        assert stream.answer.headers["content-type"] == "text/event-stream"
        first = stream.next("suite.state")
        assert (first["id"], first["data"]["state"]) == (None, "Open")
        assert first["data"]["total_tasks"] == 0
        task = admin.submit(suite_uuid=suite)
        step = stream.next("node.state")
        assert (step["data"]["task_uuid"], step["data"]["kind"]) == (task, "submitted")
        assert stream.next("suite.state")["data"]["pending_tasks"] == 1
        admin.post(f"/suites/{suite}/cancel", {})
        ended = stream.next("node.state")["data"]
        assert (ended["kind"], ended["outcome"]) == ("ended", "cancelled")
        last = stream.next("suite.state")["data"]
        while last["pending_tasks"] or last["state"] != "Cancelled":
            last = stream.next("suite.state")["data"]
        assert last["cancelled_tasks"] == 1
    with watch(admin, suite, **{"Last-Event-ID": step["id"]}) as again:
        assert again.next("node.state")["data"]["kind"] == "ended"


def test_a_wrong_cursor_and_a_foreign_suite_are_refused(admin: LiveUser, suite: str) -> None:
    answer = admin.http.get(f"/suites/{suite}/events", headers={"Last-Event-ID": "x"})
    assert (answer.status_code, "cursor" in answer.json()["msg"]) == (400, True)
    assert admin.http.get(f"/suites/{uuid4()}/events").status_code == 404
