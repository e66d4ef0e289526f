"""The console's page for suites, as an operator clicks it."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import AuditEntry
from suites.models import TaskSuite
from tests.integration.suites.campaign import counted
from tests.integration.suites.suite_world import act, make, ok, submit
from tests.integration.workers.people import Caller, new_user

pytestmark = pytest.mark.django_db

LIST = "admin:suites_tasksuite_changelist"


@pytest.fixture
def console(db: None) -> Client:
    browser = Client()
    browser.force_login(new_user("root", admin=True))
    return browser


def click(console: Client, verb: str, *suites: TaskSuite, sure: bool = True) -> Any:
    form: dict[str, Any] = {"action": verb, "_selected_action": [one.pk for one in suites]}
    if sure:
        form["confirmed"] = "yes"
    return console.post(reverse(LIST), form)


def test_the_list_shows_counts_without_a_query_per_row(
    console: Client, ada: Caller, django_assert_max_num_queries: Any
) -> None:
    for n in range(12):
        submit(ada, make(ada, name=f"suite {n}"))
    with django_assert_max_num_queries(8):
        page = console.get(reverse(LIST))
    assert page.status_code == 200
    assert b"suite 11" in page.content
    assert page.content.count(b'field-pending">1<') == 12


@pytest.mark.parametrize(
    "query",
    ["?state=0", "?halt=paused", "?halt=blocked", "?halt=none", "?auto_match__exact=1", "?q=lab"],
)
def test_filters_and_search_answer(console: Client, ada: Caller, query: str) -> None:
    make(ada, name="x", labels=["lab"])
    assert console.get(f"{reverse(LIST)}{query}").status_code == 200


def test_search_finds_by_uuid_group_label_and_name(console: Client, ada: Caller) -> None:
    one, other = make(ada, name="First <b>", labels=["l:1"]), make(ada, name="second")
    for term in (str(one.uuid), "l:1", "FIRST"):
        page = console.get(reverse(LIST), {"q": term}).content
        assert str(one.uuid).encode() in page
        assert str(other.uuid).encode() not in page
    assert b"First &lt;b&gt;" in console.get(reverse(LIST), {"q": "ada"}).content
    assert console.get(reverse(LIST), {"q": "\x00"}).status_code == 200


def test_an_action_asks_before_it_acts(console: Client, ada: Caller) -> None:
    suite = make(ada, name="precious")
    submit(ada, suite)
    question = click(console, "cancel", suite, sure=False)
    assert question.status_code == 200
    assert b"Cancel 1 suites?" in question.content
    assert b"precious" in question.content
    suite.refresh_from_db()
    assert suite.state.value == "Open"
    assert click(console, "cancel", suite).status_code == 302
    suite.refresh_from_db()
    assert suite.state.value == "Cancelled"
    assert counted(suite) == (1, 0)
    assert AuditEntry.objects.filter(action="console.cancel", outcome="ok").exists()
    assert AuditEntry.objects.filter(action="suite.cancel", actor_id="root").exists()


def test_every_action_does_what_the_api_does(console: Client, ada: Caller) -> None:
    suite = make(ada)
    submit(ada, suite)
    for verb, state, is_paused in [
        ("close", "Closed", False),
        ("reopen", "Open", False),
        ("pause", "Open", True),
        ("resume", "Open", False),
    ]:
        assert click(console, verb, suite).status_code == 302
        suite.refresh_from_db()
        assert (suite.state.value, suite.paused_at is not None) == (state, is_paused), verb


def test_one_refusal_does_not_stop_the_others(console: Client, ada: Caller) -> None:
    dead, alive = make(ada), make(ada)
    ok(act(ada, dead, "cancel", {}))
    click(console, "close", dead, alive)
    alive.refresh_from_db()
    assert alive.state.value == "Closed"
    refusal = AuditEntry.objects.get(action="console.close", outcome="state.invalid_transition")
    assert str(dead.uuid) in refusal.object


def test_nothing_is_edited_by_hand_and_secrets_are_masked(console: Client, ada: Caller) -> None:
    hook = {"args": ["x"], "envs": {"API_TOKEN": "hunter2"}, "timeout": "5m"}
    suite = make(ada, env_preparation=hook)
    page = console.get(reverse("admin:suites_tasksuite_change", args=[suite.pk]))
    assert page.status_code == 200
    assert b"hunter2" not in page.content
    assert b'name="state"' not in page.content
    assert console.post(
        reverse("admin:suites_tasksuite_change", args=[suite.pk]), {"priority": 5}
    ).status_code in {302, 403}
    assert console.get(reverse("admin:suites_tasksuite_add")).status_code == 403
    suite.refresh_from_db()
    assert suite.priority == 0


def test_plain_users_do_not_get_in(ada: Caller) -> None:
    assert ada.user is not None
    browser = Client()
    browser.force_login(ada.user)
    assert browser.get(reverse(LIST)).status_code == 302
