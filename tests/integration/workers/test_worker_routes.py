"""Every route of workers has a policy and a true description in the OpenAPI document."""

from collections.abc import Iterator
from typing import Any

import httpx2
import jsonschema
import pytest
from django.test import Client
from django.urls import URLPattern

from accounts.models import User
from tests.integration.workers.inprocess import WorkerSide
from tests.integration.workers.people import new_task
from workers.policy import POLICY
from workers.urls import urlpatterns

METHODS = ("get", "post", "put", "patch", "delete")


def served() -> Iterator[tuple[str, str]]:
    """(method, name) of everything the URL configuration answers."""
    for pattern in urlpatterns:
        assert isinstance(pattern, URLPattern)
        view = pattern.callback.cls
        for method in METHODS:
            if hasattr(view, method):
                yield method.upper(), str(pattern.name)


def test_every_route_has_exactly_one_policy():
    assert sorted(served()) == sorted(POLICY)


@pytest.fixture(scope="module")
def document(django_db_blocker: Any) -> dict[str, Any]:
    return Client().get("/api/schema", headers={"accept": "application/json"}).json()


def schema_of(document: dict[str, Any], method: str, path: str, status: int = 200) -> Any:
    operation = document["paths"][path][method]
    return operation["responses"][str(status)]["content"]["application/json"]["schema"]


def as_json_schema(node: Any) -> Any:
    """OpenAPI 3.0 says `nullable` where JSON Schema says a second possibility."""
    if isinstance(node, list):
        return [as_json_schema(item) for item in node]
    if not isinstance(node, dict):
        return node
    plain = {name: as_json_schema(inner) for name, inner in node.items() if name != "nullable"}
    return {"anyOf": [plain, {"type": "null"}]} if node.get("nullable") is True else plain


def check(document: dict[str, Any], schema: Any, answer: httpx2.Response) -> None:
    whole = {
        "allOf": [as_json_schema(schema)],
        "components": as_json_schema(document["components"]),
    }
    jsonschema.validate(answer.json(), whole, cls=jsonschema.Draft7Validator)


def test_the_document_tells_worker_tokens_from_user_tokens(document: dict[str, Any]):
    paths = document["paths"]
    assert paths["/workers/tasks"]["get"]["security"] == [{"workerToken": []}]
    assert paths["/workers"]["delete"]["security"] == [{"workerToken": []}]
    assert {"userToken": []} in paths["/workers"]["post"]["security"]


def test_the_answers_to_workers_are_those_of_the_document(
    document: dict[str, Any], owner: User, worker: WorkerSide
):
    duty = schema_of(document, "get", "/workers/tasks")
    check(document, duty, worker.call("GET", "/workers/tasks"))
    ref = new_task(owner)
    offer = worker.call("GET", "/workers/tasks")
    check(document, duty, offer)
    beat = schema_of(document, "post", "/workers/heartbeat")
    check(document, beat, worker.beat())
    check(document, beat, worker.call("POST", "/workers/heartbeat", **{"Mitosis-Worker": "1"}))
    read = worker.call("GET", f"/workers/tasks/{ref.uuid}")
    check(document, schema_of(document, "get", "/workers/tasks/{task_uuid}"), read)
    report = schema_of(document, "post", "/workers/tasks")
    attempt_id = offer.json()["id"]
    check(document, report, worker.report(attempt_id, "Finish"))
    op = {"Upload": {"content_type": "result", "content_length": 1}}
    check(document, report, worker.report(attempt_id, op))
    location = worker.call("GET", f"/workers/tasks/{ref.uuid}/artifacts/result")
    path = "/workers/tasks/{task_uuid}/artifacts/{content_type}"
    check(document, schema_of(document, "get", path), location)
    refused = worker.report(attempt_id + 1, "Finish")
    check(document, schema_of(document, "post", "/workers/tasks", 404), refused)
    gone = worker.call("DELETE", "/workers")
    check(document, schema_of(document, "delete", "/workers"), gone)
