"""Webhooks over HTTP: owners only, secrets shown once, wrong input named."""

import uuid
from dataclasses import replace
from typing import Any

import pytest

from accounts.models import AuditEntry, User
from mitosis_protocol.enums import Role
from notifications.models import Webhook
from notifications.services.sending import send_due
from tests.integration.notifications.receiver import Receiver, documented_check
from tests.integration.suites.suite_world import ok, refused
from tests.integration.workers.people import Caller, caller_of, new_group, new_user

pytestmark = pytest.mark.django_db

EVENTS = ["suite.completed", "failures.burst"]


@pytest.fixture
def owner() -> Caller:
    return caller_of(new_user("owner"))


def made(caller: Caller, group: str = "owner", **changes: Any) -> dict[str, Any]:
    body = {"url": "https://hooks.example/in", "events": EVENTS, **changes}
    answer: dict[str, Any] = ok(caller.call("POST", f"/groups/{group}/webhooks", body), 201)
    return answer


def test_the_secret_is_shown_once_and_again_when_it_is_made_anew(
    owner: Caller, receiver: Receiver
) -> None:
    webhook = made(owner, url=receiver.url)
    one = f"/groups/owner/webhooks/{webhook['uuid']}"
    assert webhook["secret"].startswith("whsec_")
    assert webhook["events"] == EVENTS
    [listed] = ok(owner.call("GET", "/groups/owner/webhooks"))["webhooks"]
    assert listed == ok(owner.call("GET", one))
    assert "secret" not in listed
    rotated = ok(owner.call("POST", f"{one}/secret"), 201)["secret"]
    assert rotated != webhook["secret"]
    ok(owner.call("POST", f"{one}/ping"), 201)
    assert send_due() == 1
    [request] = receiver.http.requests
    check = documented_check()
    assert check(rotated, request.headers, request.body)
    assert not check(webhook["secret"], request.headers, request.body)


def test_a_webhook_can_be_changed_watched_and_removed(owner: Caller, receiver: Receiver) -> None:
    one = f"/groups/owner/webhooks/{made(owner, url=receiver.url)['uuid']}"
    changed = ok(owner.call("PATCH", one, {"events": ["manager.offline"], "enabled": False}))
    assert (changed["events"], changed["enabled"]) == (["manager.offline"], False)
    told = ok(owner.call("POST", f"{one}/ping"), 201)["uuid"]
    [waiting] = ok(owner.call("GET", f"{one}/deliveries"))["deliveries"]
    assert (waiting["uuid"], waiting["state"], waiting["event"]) == (told, "waiting", "ping")
    assert send_due() == 1  # a ping also goes to one that is switched off
    [done] = ok(owner.call("GET", f"{one}/deliveries"))["deliveries"]
    assert (done["state"], done["last_status"], done["next_try_at"]) == ("delivered", 204, None)
    assert owner.call("POST", f"{one}/deliveries/{told}/redeliver").status_code == 204
    assert send_due() == 1
    assert ok(owner.call("GET", f"{one}/deliveries?before={done['id']}"))["deliveries"] == []
    refused(owner.call("GET", f"{one}/deliveries?before=x"), 400, "before")
    assert owner.call("DELETE", one).status_code == 204
    refused(owner.call("GET", one), 404)
    assert not Webhook.objects.exists()


def test_wrong_input_is_named(owner: Caller) -> None:
    def post(**changes: Any) -> Any:
        body = {"url": "https://hooks.example/in", "events": EVENTS, **changes}
        return owner.call("POST", "/groups/owner/webhooks", body)

    refused(post(url="http://hooks.example/"), 400, "url", "https")
    refused(post(url="https://169.254.169.254/"), 400, "url", "private")
    refused(post(url="https://h.example/" + "x" * 600), 400, "url")
    refused(post(events=[]), 400, "events")
    refused(post(events=["ping"]), 400, "events")
    assert post(events=["suite.exploded"]).status_code == 422
    assert post(url=7).status_code == 422
    assert not Webhook.objects.exists()
    one = made(owner)["uuid"]
    answer = owner.call("PATCH", f"/groups/owner/webhooks/{one}", {"url": "https://10.0.0.1/"})
    refused(answer, 400, "url", "private")


def test_only_admins_of_the_group_reach_it(owner: Caller) -> None:
    assert owner.user is not None
    writer, stranger = caller_of(new_user("writer")), caller_of(new_user("stranger"))
    new_group("lab", owner.user, writer=Role.WRITE)
    one = f"/groups/lab/webhooks/{made(owner, 'lab')['uuid']}"
    for method, path in (("GET", one), ("DELETE", one), ("POST", f"{one}/secret")):
        assert writer.call(method, path).status_code == 403
        assert stranger.call(method, path).status_code == 404
    # Another group of the same owner does not show it either.
    elsewhere = one.replace("/lab/", "/owner/")
    refused(owner.call("GET", elsewhere), 404)
    refused(owner.call("POST", f"{one}/deliveries/{uuid.uuid4()}/redeliver"), 404)


def test_a_group_has_a_bounded_number_of_webhooks(owner: Caller, settings: Any) -> None:
    settings.MITOSIS = replace(settings.MITOSIS, webhooks_per_group=2)
    made(owner)
    made(owner)
    body = {"url": "https://hooks.example/in", "events": EVENTS}
    answer = owner.call("POST", "/groups/owner/webhooks", body)
    assert answer.status_code in {403, 429}
    assert "2 webhooks" in answer.json()["msg"]


def test_secrets_and_query_strings_stay_out_of_the_audit_log(owner: Caller, ada: User) -> None:
    webhook = made(owner, url="https://hooks.example/in?token=canary")
    text = str(list(AuditEntry.objects.values_list("action", "detail")))
    assert "webhook.create" in text
    assert "canary" not in text
    assert webhook["secret"] not in text
