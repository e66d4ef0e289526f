"""No token of the corpus opens any door: user, worker and manager routes, and both sockets."""

import json
from typing import Any
from uuid import uuid4

import pytest

from managers.services.registration import RegisteredManager
from managers.services.session_threads import in_thread
from mitosis_protocol.enums import RunnerKind, TokenKind
from runners.models import Runner
from tests.integration.access.asgi_caller import AsgiCaller
from tests.integration.access.bad_tokens import Forger
from tests.integration.managers.fleet import registered
from tests.integration.websocket.conftest import _process  # noqa: F401 - a fixture
from tests.integration.websocket.socket_world import FakeServer
from tests.integration.workers.inprocess import Site
from tests.integration.workers.people import new_user, new_worker
from workers.services.registration import RegisteredWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

BEAT = {"state": "Idle", "metrics": {}}
DOORS: tuple[tuple[TokenKind, str, str, Any], ...] = (
    (TokenKind.USER, "GET", "/users/groups", None),
    (TokenKind.USER, "GET", "/events", None),  # an asynchronous view
    (TokenKind.WORKER, "POST", "/workers/heartbeat", {}),
    (TokenKind.MANAGER, "POST", "/managers/heartbeat", BEAT),
)


def forger(kind: TokenKind) -> Forger:
    user = new_user(f"ada{uuid4().hex[:8]}")
    if kind is TokenKind.USER:
        return Forger(kind, user.username, user.token_generation)
    if kind is TokenKind.MANAGER:
        made: RegisteredManager | RegisteredWorker = registered(user)
    else:
        is_direct = kind is TokenKind.DIRECT
        made = new_worker(user, kind=RunnerKind.DIRECT if is_direct else RunnerKind.INDEPENDENT)
    runner = Runner.objects.get(pk=made.runner.pk)
    return Forger(kind, str(runner.uuid), runner.token_generation)


@pytest.mark.parametrize(("kind", "method", "path", "body"), DOORS)
def test_no_bad_token_opens_an_http_door(
    site: Site, kind: TokenKind, method: str, path: str, body: Any
) -> None:
    forge, caller = forger(kind), AsgiCaller()

    def status(token: str) -> tuple[int, str]:
        answer = site.run(caller.ask(method, path, f"Bearer {token}", body))
        return answer.status, answer.code

    assert status(forge.make())[0] < 300  # the forger is good enough to be let in
    opened = {
        name: told
        for name, token in forge.corpus()
        if (told := status(token))[0] not in {400, 401} or not told[1].startswith("auth")
    }
    assert opened == {}


@pytest.mark.parametrize(
    "header", ["Basic YTpi", "Bearer", "Bearer  ", "Token {}", "{}", "Bearer {} {}"]
)
def test_a_good_token_in_a_bad_header_is_no_token(site: Site, header: str) -> None:
    token = forger(TokenKind.USER).make()
    answer = site.run(AsgiCaller().ask("GET", "/users/groups", header.replace("{}", token), None))
    assert (answer.status, answer.code) == (400, "auth.missing")


@pytest.mark.parametrize("name", ["token", "access_token", "authorization", "jwt"])
def test_a_token_in_the_address_is_not_looked_at(site: Site, name: str) -> None:
    token = forger(TokenKind.USER).make()
    answer = site.run(AsgiCaller().ask("GET", f"/users/groups?{name}={token}", None, None))
    assert (answer.status, answer.code) == (400, "auth.missing")


@pytest.mark.usefixtures("_process")
@pytest.mark.parametrize(
    ("kind", "path"), [(TokenKind.MANAGER, "/ws/managers"), (TokenKind.DIRECT, "/ws/workers")]
)
async def test_no_bad_token_opens_a_socket(kind: TokenKind, path: str) -> None:
    forge = await in_thread(forger, kind)
    opened = {}
    for name, token in forge.corpus():
        server = FakeServer({"authorization": f"Bearer {token}"}, path=path)
        first = await server.next(20)
        if first.get("status") != 401:
            opened[name] = first
            continue
        body = await server.next(20)
        assert json.loads(body["body"])["code"].startswith("auth"), name
        await server.task
    assert opened == {}
    good = FakeServer({"authorization": f"Bearer {forge.make()}"}, path=path)
    assert (await good.next(20))["type"] == "websocket.accept"
    good.leave()
    await good.task
