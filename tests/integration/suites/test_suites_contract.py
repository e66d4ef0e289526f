"""The published contract of the suite routes: policy table and OpenAPI document."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings, strategies
from pytest_django.live_server_helper import LiveServer
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from suites import urls
from suites.policy import POLICY
from tests.integration.suites.suite_world import make, submit
from tests.integration.workers.people import Caller

CHECKS = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
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
    spelled = (f"/{pattern.pattern}" for pattern in urls.urlpatterns)
    ours = {path.replace("<uuid:", "{").replace(">", "}") for path in spelled}
    return generated | {"paths": {p: d for p, d in generated["paths"].items() if p in ours}}


def test_every_route_has_exactly_one_policy_entry() -> None:
    assert sorted(routes()) == sorted(POLICY)


def test_the_document_describes_every_route_and_what_it_takes() -> None:
    paths = document()["paths"]
    assert sum(len(operations) for operations in paths.values()) == len(POLICY)
    body = paths["/suites"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"group_name", "worker_schedule", "env_preparation"} <= body["properties"].keys()
    assert body["required"] == ["group_name", "worker_schedule"]
    assert "201" in paths["/suites"]["post"]["responses"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.timeout(300)
def test_whatever_is_sent_the_answer_is_one_the_document_declares(
    live_server: LiveServer, ada: Caller
) -> None:
    suite = make(ada)
    task = submit(ada, suite)
    described = document()
    # A stream without an end is no case for a fuzzer; it has tests of its own.
    del described["paths"]["/suites/{suite_uuid}/events"]
    schema = schemathesis.openapi.from_dict(described)
    operations = [found.ok() for found in schema.get_all_operations()]

    @settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        strategies.one_of(*(operation.as_strategy() for operation in operations)),
        strategies.booleans(),
    )
    def send(case: Any, is_known: bool) -> None:
        if is_known:
            known = {"suite_uuid": str(suite.uuid), "task_uuid": str(task)}
            case.path_parameters = {name: known[name] for name in case.path_parameters or {}}
        headers = {"Authorization": f"Bearer {ada.token}"}
        answer = case.call(base_url=live_server.url, headers=headers)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert answer.json()["msg"]

    send()
