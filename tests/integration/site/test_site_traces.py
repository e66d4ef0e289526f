"""One trace from submit to commit, sent to a real receiver of OTLP over HTTP."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from mitosis_site.tracing.export import export_traces
from notifications.services.positions import position_of
from tasks.models import ArchivedTask
from tests.fakes.tiny_http import Answer, TinyHttp, Trouble
from tests.fakes.tiny_http import Fault as HttpFault
from tests.property.lab import Lab, lab_fixture

lab = pytest.fixture(name="lab")(lab_fixture)


@pytest.fixture
def collector() -> Iterator[TinyHttp]:
    server = TinyHttp(lambda _: Answer(200, b"{}"))
    server.start()
    yield server
    server.stop()


def send(collector: TinyHttp) -> int:
    return export_traces(endpoint=collector.url, headers={"api-key": "k"})


def spans_in(collector: TinyHttp) -> list[dict[str, Any]]:
    return [
        span
        for request in collector.requests
        for resource in json.loads(request.body)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def run_with_a_loss(lab: Lab) -> UUID:
    """Claimed and lost once, then run to its end."""
    runner = lab.runner_ids[0]
    task_id = lab.submit_one()
    lost = lab.claim_attempt(runner)
    lab.start(lost, runner)
    lab.expire_lease(runner)
    lab.reap()
    other = lab.runner_ids[1]
    attempt = lab.claim_attempt(other)
    lab.start(attempt, other)
    lab.finish(attempt, other)
    lab.commit(attempt, other)
    return ArchivedTask.objects.get(pk=task_id).uuid


def test_a_task_is_one_trace_from_submit_to_commit(lab: Lab, collector: TinyHttp) -> None:
    position_of("traces")
    uuid = run_with_a_loss(lab)
    assert send(collector) == 1
    assert send(collector) == 0
    [request] = collector.requests
    assert request.path == "/v1/traces"
    assert request.headers["api-key"] == "k"
    assert request.headers["content-type"] == "application/json"
    spans = spans_in(collector)
    assert {span["traceId"] for span in spans} == {uuid.hex}
    assert len({span["spanId"] for span in spans}) == len(spans)
    [root] = [span for span in spans if not span["parentSpanId"]]
    names = [span["name"] for span in spans]
    assert root["name"] == "task"
    assert root["status"] == {"code": 1}
    assert names.count("run") == 2
    assert names.count("commit") == 1
    assert names.count("wait 1") == names.count("wait 2") == 1
    assert sorted(name for name in names if name.startswith("attempt")) == [
        "attempt 1",
        "attempt 2",
    ]
    by_id = {span["spanId"]: span for span in spans}
    for span in spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        if span["parentSpanId"]:
            parent = by_id[span["parentSpanId"]]
            assert int(parent["startTimeUnixNano"]) <= int(span["startTimeUnixNano"])
            assert int(span["endTimeUnixNano"]) <= int(parent["endTimeUnixNano"])


def test_a_collector_in_trouble_gets_the_same_trace_later(lab: Lab, collector: TinyHttp) -> None:
    position_of("traces")
    run_with_a_loss(lab)
    collector.faults += [
        HttpFault("POST", "/v1/traces", Answer(503)),
        HttpFault("POST", "/v1/traces", Trouble.LOST_ANSWER),
    ]
    assert send(collector) == 0
    assert send(collector) == 0
    assert send(collector) == 1
    first, second, third = (request.body for request in collector.requests)
    assert first == second == third
