"""Sockets of direct workers without a network: certificates, and what an HTTP route takes."""

import json
import logging
from typing import Any
from uuid import uuid4

import pytest
from pytest_django import Settings
from structlog.testing import capture_logs

from managers.services.session_threads import in_thread
from mitosis_protocol.control_payloads import Drain, Handshake, Payload
from mitosis_protocol.control_plane import Sender, Stamp, seal
from mitosis_protocol.enums import RunnerKind
from tests.integration.suites.campaign import make_user
from tests.integration.websocket.socket_world import FakeServer
from tests.integration.workers.inprocess import Site
from tests.integration.workers.people import new_task, new_worker
from workers.services.registration import RegisteredWorker

pytestmark = pytest.mark.django_db(transaction=True)
HEADER = "X-Client-Name"


class Direct:
    """A registered direct worker and its first frames."""

    def __init__(self, certificate: str | None = None) -> None:
        self.user = make_user(f"ada{uuid4().hex[:8]}")
        self.worker: RegisteredWorker = new_worker(
            self.user, kind=RunnerKind.DIRECT, certificate=certificate
        )
        self.uuid = str(self.worker.runner.uuid)

    def knock(self, **headers: str) -> FakeServer:
        bearer = {"authorization": f"Bearer {self.worker.token}", **headers}
        return FakeServer(bearer, path="/ws/workers")

    def frame(self, payload: Payload) -> str:
        sender = Sender(role="worker", id=self.uuid)
        stamp = Stamp(uuid4().hex, "2026-01-01T00:00:00Z", self.user.username, sender)
        return seal(payload, stamp, wants_ack=True)

    def handshake(self, **changes: Any) -> str:
        return self.frame(
            Handshake(worker_id=self.worker.runner.uuid, process_id=uuid4(), **changes)
        )


@pytest.mark.usefixtures("_process")
async def test_without_a_header_configured_a_token_is_enough():
    direct = await in_thread(Direct)
    server = direct.knock()
    assert (await server.next())["type"] == "websocket.accept"
    server.give_text(direct.handshake())
    terms = (await server.answer())["payload"]["session"]
    assert terms["tenant"] == direct.user.username
    server.leave()
    await server.task


@pytest.mark.usefixtures("_process")
async def test_every_frame_is_in_the_log_with_its_names_and_without_its_content(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG, logger="websocket")
    direct = await in_thread(Direct)
    server = direct.knock()
    await server.next()
    with capture_logs() as logs:
        server.give_text(direct.handshake(software="canary"))
        answer = await server.answer()
        server.give_text(direct.frame(Drain(reason="canary")))
        assert (await server.answer())["payload"]["code"] == "E.CMD.UNKNOWN"
    said = [line for line in logs if line["event"].startswith("worker.")]
    assert [(line["event"], line["type"], line["code"]) for line in said] == [
        ("worker.heard", "handshake", None),
        ("worker.told", "ack", None),
        ("worker.heard", "cmd.drain", None),
        ("worker.told", "error", "E.CMD.UNKNOWN"),
        ("worker.refused", "cmd.drain", "E.CMD.UNKNOWN"),
    ]
    names = {(line["tenant"], line["sender.id"]) for line in said}
    assert names == {(direct.user.username, direct.uuid)}
    assert said[1]["id"] == answer["id"]
    assert all({"id", "corr", "seq"} <= line.keys() for line in said)
    assert "canary" not in str(said)
    server.leave()
    await server.task


@pytest.mark.usefixtures("_process")
async def test_with_one_configured_the_certificate_has_to_be_the_tokens_own(settings: Settings):
    settings.MTLS_HEADER = HEADER
    direct = await in_thread(Direct)
    for headers in ({}, {HEADER: str(uuid4())}, {HEADER: ""}):
        server = direct.knock(**headers)
        assert (await server.next())["status"] == 401
        body = json.loads((await server.next())["body"])
        assert body["code"] == "auth.mtls_required"
        await server.task
    server = direct.knock(**{HEADER: direct.uuid})
    assert (await server.next())["type"] == "websocket.accept"
    server.give_text(direct.handshake(auth="mtls"))
    assert (await server.answer())["type"] == "ack"
    server.leave()
    await server.task


@pytest.mark.usefixtures("_process")
async def test_a_certificate_shown_at_the_registration_is_the_one_to_show(settings: Settings):
    settings.MTLS_HEADER = HEADER
    direct = await in_thread(Direct, "ab12")
    for headers in ({}, {HEADER: direct.uuid}, {HEADER: "ab13"}):
        server = direct.knock(**headers)
        assert (await server.next())["status"] == 401
        await server.next()
        await server.task
    server = direct.knock(**{HEADER: "ab12"})
    assert (await server.next())["type"] == "websocket.accept"
    server.leave()
    await server.task


@pytest.mark.usefixtures("_process")
async def test_a_worker_that_does_not_know_of_certificates_is_told(settings: Settings):
    settings.MTLS_HEADER = HEADER
    direct = await in_thread(Direct)
    server = direct.knock(**{HEADER: direct.uuid})
    assert (await server.next())["type"] == "websocket.accept"
    server.give_text(direct.handshake(auth="token"))
    assert (await server.answer())["payload"]["code"] == "E.AUTH.MTLS_REQUIRED"
    assert (await server.closed())[0] == 4401


@pytest.mark.usefixtures("_process")
async def test_an_old_protocol_and_a_foreign_worker_id_are_refused():
    direct = await in_thread(Direct)
    server = direct.knock()
    await server.next()
    server.give_text(direct.handshake(protocol_version=0))
    assert (await server.answer())["payload"]["code"] == "E.PROTOCOL.VERSION"
    wrong = Handshake(worker_id=uuid4(), process_id=uuid4())
    server.give_text(direct.frame(wrong))
    assert (await server.answer())["payload"]["code"] == "E.SESSION.DENIED"
    assert (await server.closed())[0] == 4400


def test_direct_tokens_open_the_routes_for_bulk_and_not_the_polling_ones(transactional_db: None):
    direct = Direct()
    new_task(direct.user)
    site = Site()
    try:
        side = site.worker(direct.worker.token)
        assert side.call("GET", "/workers/tasks").status_code == 401
        assert side.beat({}).status_code == 401
        # Let in, and told that the attempt is not its own.
        assert side.report(1, "Finish").status_code not in {401, 403}
        assert site.worker("garbage").report(1, "Finish").status_code == 401
    finally:
        site.close()
