"""The published contract of the task routes: policy table and OpenAPI document."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings, strategies
from pytest_django.live_server_helper import LiveServer
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tasks import urls
from tasks.policy import POLICY
from tests.integration.tasks.api_world import Caller, ok, submit

CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
METHODS = ("get", "post", "put", "patch", "delete")


def routes() -> Iterator[tuple[str, str]]:
    patterns: list[Any] = urls.urlpatterns
    for pattern in patterns:
        callback = pattern.callback
        view = getattr(callback, "view_class", None) or callback.cls
        for method in METHODS:
            if hasattr(view, method):
                yield method.upper(), str(pattern.name)


def document() -> dict[str, Any]:
    generated: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    ours = {_spelled(str(pattern.pattern)) for pattern in urls.urlpatterns}
    return generated | {"paths": {p: d for p, d in generated["paths"].items() if p in ours}}


def _spelled(pattern: str) -> str:
    for kind in ("uuid", "str", "path"):
        pattern = pattern.replace(f"<{kind}:", "{")
    return "/" + pattern.replace(">", "}")


def test_every_route_has_exactly_one_policy_entry() -> None:
    assert sorted(routes()) == sorted(POLICY)


def test_the_document_describes_every_route_and_what_it_takes() -> None:
    paths = document()["paths"]
    assert sum(len(operations) for operations in paths.values()) == len(POLICY)
    body = paths["/tasks"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    six = ["group_name", "tags", "labels", "timeout", "priority", "task_spec"]
    assert body["required"] == six
    assert {"suite_uuid", "depends_on", "retry", "limits"} <= body["properties"].keys()
    assert "201" in paths["/tasks/array"]["post"]["responses"]
    assert "text/event-stream" in str(paths["/tasks/{task_uuid}/events"]["get"]["responses"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(300)
def test_whatever_is_sent_the_answer_is_one_the_document_declares(
    live_server: LiveServer, ada: Caller
) -> None:
    uuid = submit(ada)
    ok(ada.call("POST", "/groups/ada/attachments", {"key": "k", "content_length": 1}))
    described = document()
    # Asynchronous routes need an event loop of their own and have their own tests.
    del described["paths"]["/tasks/{task_uuid}/events"], described["paths"]["/events"]
    schema = schemathesis.openapi.from_dict(described)
    operations = [found.ok() for found in schema.get_all_operations()]

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        strategies.one_of(*(operation.as_strategy() for operation in operations)),
        strategies.booleans(),
    )
    def send(case: Any, is_known: bool) -> None:
        if is_known:
            known = {"task_uuid": str(uuid), "group": "ada", "key": "k", "content_type": "result"}
            case.path_parameters = {name: known[name] for name in case.path_parameters or {}}
        headers = {"Authorization": f"Bearer {ada.token}"}
        answer = case.call(base_url=live_server.url, headers=headers)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert answer.json()["msg"]

    send()
