"""Deliveries under trouble: retries, deaths, races, receivers that misbehave."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection, connections
from django.test import Client

from accounts.actors import SYSTEM
from accounts.models import User
from mitosis_protocol.enums import DeliveryState
from notifications.models import Webhook, WebhookDelivery
from notifications.posting import post
from notifications.services import sending
from notifications.services.subscriptions import ping, redeliver
from notifications.services.turns import turn
from notifications.targets import TargetRefused, parse_target, resolve
from tests.fakes.tiny_http import Answer
from tests.integration.managers.fleet import age
from tests.integration.notifications.receiver import Receiver, subscribe
from tests.integration.suites.campaign import make_user

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[3]


def due_again() -> None:
    age("webhook_deliveries", "true", next_try_at=30_000)


def only() -> WebhookDelivery:
    return WebhookDelivery.objects.get()


def test_a_refused_delivery_is_retried_later_and_given_up_in_the_end(
    ada: User, receiver: Receiver, settings: Any
) -> None:
    settings.MITOSIS = replace(settings.MITOSIS, webhook_tries=3)
    webhook = subscribe(ada, receiver.url)
    ping(actor=SYSTEM, webhook=webhook)
    receiver.answer = lambda _: Answer(503)
    waits = []
    for _ in range(3):
        assert sending.send_due() == 0
        assert sending.send_due() == 0  # not due: nobody hammers a receiver in trouble
        row = only()
        assert row.last_try_at is not None
        waits.append((row.next_try_at - row.last_try_at).total_seconds())
        due_again()
    assert len(receiver.http.requests) == 3
    assert 8 < waits[0] < 12 < waits[1] < 24 < waits[2] < 48
    row = only()
    assert (row.state, row.tries, row.last_status) == (DeliveryState.GIVEN_UP, 3, 503)
    assert "503" in row.last_error
    # By hand it begins anew, with the id the receiver may know.
    receiver.answer = lambda _: Answer(200)
    redeliver(actor=SYSTEM, delivery=row)
    assert sending.send_due() == 1
    assert only().state is DeliveryState.DELIVERED
    assert len({request.headers["webhook-id"] for request in receiver.http.requests}) == 1
    signatures = {request.headers["webhook-signature"] for request in receiver.http.requests}
    assert all(signature.startswith("v1,") for signature in signatures)


@pytest.mark.django_db(transaction=True)
def test_a_sender_killed_between_request_and_note_sends_again(
    ada: User, receiver: Receiver
) -> None:
    webhook = subscribe(ada, receiver.url)
    ping(actor=SYSTEM, webhook=webhook)
    name = connection.settings_dict["NAME"]
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}").geturl()
    code = "from notifications.services.sending import send_due; send_due()"
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "--no-imports", "-c", code],
        cwd=ROOT,
        env={
            **os.environ,
            "DATABASE_URL": database,
            "MITOSIS_WEBHOOK_HOSTS": "127.0.0.1",
            "MITOSIS_FAULTS": "webhooks.sent_before_mark=kill9",
        },
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(receiver.http.requests) == 1
    row = only()
    assert (row.state, row.tries, row.last_status) == (DeliveryState.WAITING, 1, None)
    due_again()
    assert sending.send_due() == 0  # the dead one still has the turn
    age("job_turns", "true", until=sending.TURN_S)
    assert sending.send_due() == 1
    first, second = receiver.http.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert only().state is DeliveryState.DELIVERED


@pytest.mark.django_db(transaction=True)
def test_senders_at_once_repeat_nothing(ada: User, receiver: Receiver) -> None:
    webhook = subscribe(ada, receiver.url)
    for _ in range(12):
        ping(actor=SYSTEM, webhook=webhook)
    barrier = threading.Barrier(3)

    def send() -> None:
        barrier.wait()
        sending.send_due()
        connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(receiver.http.requests) == 12
    assert len({body["id"] for body in receiver.bodies}) == 12
    assert not WebhookDelivery.objects.exclude(state=DeliveryState.DELIVERED).exists()


def test_rows_are_claimed_once_even_without_the_turn(ada: User, receiver: Receiver) -> None:
    webhook = subscribe(ada, receiver.url)
    for _ in range(4):
        ping(actor=SYSTEM, webhook=webhook)
    with turn("webhooks", limit_s=60) as first, turn("webhooks", limit_s=60) as second:
        assert (first, second) == (True, False)
        assert sending.send_due() == 0
    assert len(sending._claim()) == 4
    assert sending._claim() == []


def test_one_full_receiver_does_not_take_all_places(ada: User, receiver: Receiver) -> None:
    other = subscribe(make_user("bob"), f"{receiver.http.url}/bob")
    webhook = subscribe(ada, receiver.url)
    for _ in range(30):
        ping(actor=SYSTEM, webhook=webhook)
    ping(actor=SYSTEM, webhook=other)
    claimed = sending._claim()
    assert sum(one.webhook == webhook.uuid for one in claimed) == sending.PER_WEBHOOK
    assert sum(one.webhook == other.uuid for one in claimed) == 1


def test_redirects_are_not_followed(ada: User, receiver: Receiver) -> None:
    ping(actor=SYSTEM, webhook=subscribe(ada, receiver.url))
    target = f"{receiver.http.url}/inner"
    receiver.answer = lambda _: Answer(307, headers={"Location": target})
    assert sending.send_due() == 0
    assert [request.path for request in receiver.http.requests] == ["/hook"]
    assert only().last_status == 307


def test_a_late_answer_of_an_older_try_changes_nothing(ada: User, receiver: Receiver) -> None:
    ping(actor=SYSTEM, webhook=subscribe(ada, receiver.url))
    [older] = sending._claim()
    due_again()
    [newer] = sending._claim()
    sending._mark(older, sending.Answer(500, "too late"))
    assert only().last_status is None
    sending._mark(newer, sending.Answer(200))
    sending._mark(older, sending.Answer(500, "much too late"))
    assert only().state is DeliveryState.DELIVERED


def test_a_receiver_that_drips_is_cut_off() -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            peer, _ = server.accept()
            with peer:
                try:
                    peer.sendall(b"HTTP/1.1 2")
                    while not stop.wait(0.05):
                        peer.sendall(b"0")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        target = parse_target(
            f"http://127.0.0.1:{server.getsockname()[1]}/", trusted_hosts=["127.0.0.1"]
        )
        started = time.monotonic()
        answer = post(target, body=b"{}", headers={}, limit_s=0.5)
        took_s = time.monotonic() - started
        stop.set()
        thread.join(10)
    assert answer.status is None
    assert took_s < 10


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/",
        "ftp://hooks.example/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::7f00:1]/",
        "https://169.254.169.254/latest/meta-data",
        "https://10.1.2.3:8443/",
        "https://100.64.0.1/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://user:pw@hooks.example/",
        "https://hooks.example/#part",
        "https://hooks.example/a b",
        "https:///nothing",
        "https://hooks.example:99999/",
        "nonsense",
    ],
)
def test_addresses_that_may_not_be_called(url: str) -> None:
    with pytest.raises(TargetRefused):
        parse_target(url, trusted_hosts=["ci.internal"])


def test_a_name_that_leads_home_is_refused_when_it_is_called(ada: User, settings: Any) -> None:
    target = parse_target("https://localhost/", trusted_hosts=[])
    with pytest.raises(TargetRefused):
        resolve(target)
    trusted = parse_target("http://localhost/", trusted_hosts=["LOCALHOST"])
    assert resolve(trusted) in {"127.0.0.1", "::1"}
    ping(actor=SYSTEM, webhook=subscribe(ada, "https://localhost/"))
    assert sending.send_due() == 0
    assert "private" in only().last_error


def test_old_deliveries_are_forgotten_and_waiting_ones_stay(ada: User, receiver: Receiver) -> None:
    webhook = subscribe(ada, receiver.url)
    ping(actor=SYSTEM, webhook=webhook)
    sending.send_due()
    waiting = ping(actor=SYSTEM, webhook=webhook)
    age("webhook_deliveries", "true", created_at=31 * 86_400)
    assert sending.forget_old(keep=sending.timedelta(days=30)) == 1
    assert only().pk == waiting.pk


def test_the_console_shows_the_log_and_delivers_again(ada: User, receiver: Receiver) -> None:
    client = Client()
    client.force_login(make_user("root", admin=True))
    ping(actor=SYSTEM, webhook=subscribe(ada, receiver.url))
    sending.send_due()
    assert client.get("/admin/notifications/webhook/").status_code == 200
    page = "/admin/notifications/webhookdelivery/"
    assert str(only().uuid) in client.get(page).content.decode()
    body = {"action": "deliver_again", "_selected_action": [only().pk]}
    assert client.post(page, body).status_code == 302
    assert sending.send_due() == 1
    assert len(receiver.http.requests) == 2
    assert Webhook.objects.count() == 1
