"""Texts and names that would like to be SQL, patterns, lookups or orders: they are only texts.

Every list of the API is asked with every text of the corpus in every text filter, and with names
of filters that only the ORM knows. What it answers must be what a harmless unknown text is answered
with, and what nobody gave leave for must change nothing.
"""

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.db import connection
from django.http import HttpResponse
from django.test.utils import CaptureQueriesContext

from accounts.actors import SYSTEM
from accounts.services.storage import charge_storage
from mitosis_protocol.specs import WorkerSchedule
from mitosis_protocol.suites import SuiteSpec
from suites.services.create import create_suite
from tasks.models import Attachment
from tests.figures import Figure
from tests.integration.managers.fleet import registered
from tests.integration.workers.people import Caller, caller_of, new_task, new_user, new_worker

pytestmark = pytest.mark.django_db(transaction=True)

HARMLESS: Final = "nobody-has-this"
TEXTS: Final = (
    "'", '"', "`", "\\", "%", "_", "%%", "_______", "*", "?", "$1", "%s", "%(x)s", "{0}", "${7*7}",
    "' OR '1'='1", "' OR 1=1 --", "'; DROP TABLE active_tasks; --", "') OR ('1'='1",
    "x' UNION SELECT password FROM users --", "1; SELECT pg_sleep(5)", "'||pg_sleep(5)||'",
    "\\'; SELECT 1 --", "\u02bc OR 1=1", "a\nb", "a\tb", "ab; --", "/* */", "{}", "[]", "{*}",
    '{"$ne": null}', '{"a": {"$gt": ""}}', "{label}", "ARRAY['x']", "@>", "->>'x'", "?|", "null",
    ".*", "^", "(a+)+$", "[[:alpha:]]", "\u202e", "\U0001f4a9", "A" * 200,
)  # fmt: skip
# Names of the ORM, of other frameworks' filters, and of columns that no filter has.
NAMES: Final = (
    "labels__contains", "labels__icontains", "name__regex", "group__name", "creator__password",
    "group__memberships__user__username", "id__gt", "pk", "order_by", "ordering", "sort", "fields",
    "creator__token_generation__gte", "spec__envs__has_key", "__class__", "$where", "filter[name]",
    "group_name__startswith", "limit__lt", "exclude", "select", "q", "search",
)  # fmt: skip
Place = tuple[str, str, dict[str, Any], tuple[str, ...]]
# Method, address, what every request says, text filters; a list is asked with a list of one.
PLACES: Final[tuple[Place, ...]] = (
    ("POST", "/tasks/query", {"count": False}, ("labels", "tags", "creator_usernames",
                                                "uuid_prefix", "exit_status", "priority")),
    ("POST", "/workers/query", {"count": False}, ("labels", "tags", "creator_username")),
    ("POST", "/suites/query", {}, ("labels", "tags", "name")),
    ("POST", "/groups/ada/attachments/query", {"count": False}, ("key",)),
    ("GET", "/suites", {}, ("labels", "tags", "name")),
    ("GET", "/managers", {}, ("labels", "tags", "creator_username")),
)  # fmt: skip
LISTS: Final = {"labels", "tags", "creator_usernames"}
VOLATILE: Final = ("request_id", "instance", "msg", "detail", "errors", "title")


@pytest.fixture
def ada() -> Caller:
    """Somebody with one of everything, and a neighbour who has the same."""
    for name in ("ada", "eve"):
        user = new_user(name)
        group = user.memberships.get().group
        new_task(user, labels=["plain"], tags=["plain"])
        new_worker(user, tags=["plain"], labels=["plain"])
        registered(user, "plain", groups=[f"{name}:admin"])
        spec = SuiteSpec(group_name=name, name="plain", labels=["plain"], tags=["plain"],
                         worker_schedule=WorkerSchedule(worker_count=1))  # fmt: skip
        create_suite(actor=SYSTEM, creator=user, group=group, spec=spec, defaults=settings.MITOSIS)
        Attachment.objects.create(group=group, key="plain", size=3)
        charge_storage(group_id=group.pk, delta=3)
        if name == "ada":
            owner = user
    return caller_of(owner)


def ask(caller: Caller, place: Place, **members: Any) -> HttpResponse:
    method, path, common, _ = place
    if method == "POST":
        return caller.call("POST", path, {**common, **members})
    return caller.call("GET", f"{path}?{urlencode(members, doseq=True)}")


def told(answer: HttpResponse) -> str:
    """Without what differs between any two refusals: they may quote what was asked."""
    body = json.loads(answer.content)
    for name in VOLATILE:
        body.pop(name, None)
    return f"{answer.status_code} {json.dumps(body, sort_keys=True)}"


def filters() -> Iterator[tuple[Place, str]]:
    for place in PLACES:
        for name in place[3]:
            yield place, name


def value(name: str, text: str) -> Any:
    return [text] if name in LISTS else text


def test_every_filter_works_at_all(ada: Caller) -> None:
    """Otherwise that nothing is found would show nothing."""
    for place in PLACES:
        assert "plain" in ask(ada, place).content.decode(), place
        for name in {"tags", "name", "key"} & set(place[3]):
            assert "plain" in ask(ada, place, **{name: value(name, "plain")}).content.decode()


def test_hostile_texts_find_nothing_and_break_nothing(ada: Caller, figure: Figure) -> None:
    problems, asked = [], 0
    for place, name in filters():
        nothing = told(ask(ada, place, **{name: value(name, HARMLESS)}))
        for text in TEXTS:
            with CaptureQueriesContext(connection) as queries:
                answer = ask(ada, place, **{name: value(name, text)})
            asked += 1
            if answer.status_code >= 500 or "plain" in answer.content.decode():
                problems.append(f"{place[1]} {name}={text!r}: {told(answer)}")
            # A number or a uuid may be refused for another reason than an unknown word.
            elif answer.status_code < 400 and told(answer) != nothing:
                problems.append(f"{place[1]} {name}={text!r}: {told(answer)} not {nothing}")
            if any("pg_sleep" in query["sql"] and "'" not in query["sql"] for query in queries):
                problems.append(f"{place[1]} {name}={text!r} was not bound")
    assert problems == []
    figure("injection corpus: blocked", 100.0 * (asked - len(problems)) / asked, "%", at_least=100)


def test_names_of_the_orm_are_no_filters(ada: Caller) -> None:
    problems = []
    for place in PLACES:
        plain = told(ask(ada, place))
        for name in NAMES:
            for text in ("a", "-creator__password", "eve"):
                said = told(ask(ada, place, **{name: text}))
                is_refused = said.startswith("4")
                if not is_refused and said != plain:
                    problems.append(f"{place[1]} {name}={text}: {said[:300]}")
    assert problems == []
