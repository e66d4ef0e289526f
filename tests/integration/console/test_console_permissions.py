"""Every page x everybody: who is let in, who hears that there is nothing, who has to log in.

Expectations come from the policy table; a page without an entry fails.
"""

from collections.abc import Iterator
from typing import Final

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from accounts.permissions import at_least
from accounts.policy import Need
from accounts.services.sessions import issue_user_token
from console.policy import POLICY, ROLE_COUNTS
from console.urls import urlpatterns
from mitosis_protocol.enums import Role
from tests.integration.console.world import Things, World

METHODS: Final = ("GET", "POST")
MEMBERS: Final = {"reader": Role.READ, "writer": Role.WRITE, "admin": Role.ADMIN}
NEEDED: Final = {
    Need.GROUP_READ: Role.READ, Need.RUNNER_READ: Role.READ,
    Need.GROUP_WRITE: Role.WRITE, Need.GROUP_ADMIN: Role.ADMIN, Need.RUNNER_ADMIN: Role.ADMIN,
}  # fmt: skip
PRINCIPALS: Final = ("anonymous", "locked", "stranger", *MEMBERS, "staff")
# A stream gives the connection that let it in back, so its tests cannot live in one transaction.
STREAMS: Final = pytest.mark.django_db(transaction=True)
FORMS: Final = {
    "console-grant": {"group": "lab", "role": "Read"},
    "console-ungrant": {"group": "lab"},
    "console-consent": {"answer": "accept"},
}


def patterns() -> Iterator[URLPattern]:
    for pattern in urlpatterns:
        assert isinstance(pattern, URLPattern)
        yield pattern


def address(name: str, things: Things) -> str:
    [pattern] = [one for one in patterns() if one.name == name]
    named = {**things.addresses(), "verb": "drain" if "manager" in name else "pause"}
    if name == "console-consent":
        named["manager_uuid"] = str(things.applicant.uuid)
    if name == "console-task-rerun":
        named["task_uuid"] = str(things.waiting)
    return reverse(name, kwargs={key: named[key] for key in pattern.pattern.converters})


def expected(method: str, name: str, principal: str, *, is_own: bool) -> set[int]:
    need = POLICY[method, name]
    if need is Need.NOBODY:
        return {200, 302}
    if principal in {"anonymous", "locked"}:
        return {403} if name.endswith("-live") else {302}
    if need is Need.USER:
        return {302} if name == "console-find" else {200}
    return {_of_a_thing(need, name, principal, is_own=is_own)}


def _of_a_thing(need: Need, name: str, principal: str, *, is_own: bool) -> int:
    if principal == "staff" and name not in ROLE_COUNTS:
        return 200
    if principal == "staff":
        # To a group he is not in he may not even know of the question.
        return 404 if name == "console-consent" else 403
    if principal == "stranger" or not is_own:
        return 404
    return 200 if at_least(MEMBERS[principal], NEEDED[need]) else 403


def ask(client: Client, method: str, name: str, things: Things) -> int:
    target = address(name, things)
    if method == "GET":
        return client.get(target).status_code
    return client.post(target, FORMS.get(name, {})).status_code


def test_every_page_has_a_need_and_no_other_method() -> None:
    names = {str(one.name) for one in patterns()}
    assert names == {name for _, name in POLICY}


@STREAMS
def test_every_page_lets_in_whom_the_policy_names(world: World) -> None:
    problems = []
    for method, name in POLICY:
        for principal in PRINCIPALS:
            for things, is_own in ((world.lab, True), (world.lux, False)):
                status = ask(world.client(principal), method, name, things)
                if status not in expected(method, name, principal, is_own=is_own):
                    problems.append(f"{method} {name} as {principal}, own={is_own}: {status}")
    assert not problems, "\n".join(problems)


def test_other_methods_are_refused(world: World) -> None:
    client = world.client("staff")
    for name in {name for _, name in POLICY}:
        for method in METHODS:
            if (method, name) not in POLICY:
                assert ask(client, method, name, world.lab) == 405, (method, name)


def test_a_foreign_thing_and_an_absent_one_look_the_same(world: World) -> None:
    client = world.client("reader")
    absent = "9b6de1f2-54e7-4f52-9d7a-2f6a7e1b0c3d"
    for kind, foreign in (
        ("suites", world.lux.suite.uuid),
        ("tasks", world.lux.waiting),
        ("managers", world.lux.manager.uuid),
    ):
        there = client.get(f"/console/{kind}/{foreign}")
        nowhere = client.get(f"/console/{kind}/{absent}")
        assert there.status_code == nowhere.status_code == 404
        assert _stable(there.content) == _stable(nowhere.content)


@STREAMS
def test_a_token_opens_no_page(world: World) -> None:
    header = {"authorization": f"Bearer {issue_user_token(world.users['staff'])}"}
    assert Client().get("/console/", headers=header).status_code == 302
    assert Client().get("/console/live", headers=header).status_code == 403


def test_an_expired_form_changes_nothing(world: World) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(world.users["admin"], "accounts.backends.ConsoleBackend")
    target = f"/console/suites/{world.lab.suite.uuid}/do/pause"
    assert client.post(target, {"confirmed": "yes"}).status_code == 403
    world.lab.suite.refresh_from_db()
    assert world.lab.suite.paused_at is None


def _stable(content: bytes) -> list[bytes]:
    """Without the one thing that differs between any two pages: the token of the logout form."""
    return [line for line in content.splitlines() if b"csrfmiddlewaretoken" not in line]


def test_a_plain_user_logs_in_and_stays_on_this_site(world: World, clean_redis: object) -> None:
    user = world.users["reader"]
    user.set_password("a long enough password")
    user.save(update_fields=["password", "token_generation"])
    body = {"username": "ron", "password": "a long enough password"}
    for asked, led in (
        ("https://evil.example/", "/console/"),
        ("//evil.example", "/console/"),
        ("/console/tasks", "/console/tasks"),
    ):
        answer = Client().post("/console/login", {**body, "next": asked})
        assert (answer.status_code, answer.headers["Location"]) == (302, led)
    assert Client().post("/console/login", {**body, "password": "wrong"}).status_code == 200
