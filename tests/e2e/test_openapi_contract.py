"""The served OpenAPI document against the running server: whatever is sent, the answer is one
the document declares, and never a server error."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings, strategies
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.e2e.cluster import Cluster
from tests.integration.workers.live_user import LiveUser

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
EXAMPLES = 4
# They end the server or the session of the user the test runs as; tests of their own cover them.
LEFT_OUT = {"/admin/shutdown", "/login", "/users/{username}/password"}


@pytest.fixture(scope="module")
def document(cluster: Cluster) -> dict[str, Any]:
    answer = httpx2.get(f"{cluster.url}/api/schema", headers={"Accept": "application/json"})
    assert answer.status_code == 200
    return answer.json()


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    live = LiveUser(cluster)
    yield live
    live.close()


def test_the_document_names_every_area_of_the_api(document: dict[str, Any]):
    paths = set(document["paths"])
    expected = {"/login", "/groups", "/tasks", "/tasks/array", "/workers", "/workers/tasks"}
    assert expected <= paths


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_whatever_is_sent_the_answer_is_declared(
    cluster: Cluster, document: dict[str, Any], user: LiveUser, mode: GenerationMode
):
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=cluster.url)
    headers = {"Authorization": user.http.headers["Authorization"]}
    failures: list[str] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in LEFT_OUT or "text/event-stream" in str(operation.definition.raw):
            continue
        try:
            _exercise(operation, mode, headers)
        except BaseExceptionGroup as group:
            failures += [f"{operation.label}: {error}" for error in group.exceptions]
        except AssertionError as error:
            failures.append(f"{operation.label}: {error}")
    assert not failures, "\n\n".join(failures)


def _exercise(operation: Any, mode: GenerationMode, headers: dict[str, str]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=strategies.data())
    def run(data: Any) -> None:
        case = data.draw(operation.as_strategy(generation_mode=mode))
        case.call_and_validate(headers=headers, checks=CHECKS, timeout=30)

    run()
