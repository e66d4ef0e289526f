"""Every route x every principal x own, foreign and absent things: who is let in, who hears what.

Expectations come from the policy tables. A thing of another tenant answers exactly like one that
does not exist: status, headers and body. The other tenant's rows are the same before and after.
"""

import logging
import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from enum import Enum, auto
from typing import Any, Final

import pytest
import redis
from django.db import connection
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.permissions import at_least
from accounts.policy import Need
from mitosis_protocol.enums import Role
from tests.figures import Figure
from tests.integration.access.asgi_caller import Answer, AsgiCaller
from tests.integration.access.requests_made import NEEDS, Row, rows
from tests.integration.access.tenants import People, Things, nothing
from tests.integration.workers.inprocess import Site
from tests.integration.workers.people import new_user

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]

METHODS: Final = ("get", "post", "put", "patch", "delete")
MEMBERS: Final = {"reader": Role.READ, "writer": Role.WRITE, "admin": Role.ADMIN}
OUTSIDERS: Final = ("stranger", "rival", "staff")
BAD_TOKENS: Final = ("garbage", "expired", "revoked", "wrong audience")
PRINCIPALS: Final = (
    "anonymous", *BAD_TOKENS, "locked", "worker", "manager", *OUTSIDERS, *MEMBERS,
)  # fmt: skip
PLACED: Final = {
    Need.GROUP_READ: Role.READ, Need.RUNNER_READ: Role.READ,
    Need.GROUP_WRITE: Role.WRITE, Need.RUNNER_WRITE: Role.WRITE,
    Need.GROUP_ADMIN: Role.ADMIN, Need.RUNNER_ADMIN: Role.ADMIN,
}  # fmt: skip
TOKENS: Final = {
    Need.WORKER: "worker", Need.ANY_WORKER: "worker", Need.MANAGER: "manager",
}  # fmt: skip
# The header that differs between any two answers.
VOLATILE: Final = frozenset({"x-request-id", "date"})


class Verdict(Enum):
    NO_HEADER = auto()
    BAD_TOKEN = auto()
    FORBIDDEN = auto()
    HIDDEN = auto()  # exactly the answer to an absent thing
    IN = auto()


def expected(row: Row, principal: str, place: str) -> Verdict:
    need = row.need
    if need is Need.NOBODY:
        return Verdict.IN
    if principal == "anonymous":
        return Verdict.NO_HEADER
    if need in TOKENS and principal == TOKENS[need]:
        return Verdict.IN if place == "own" else Verdict.HIDDEN
    if need in TOKENS or principal in BAD_TOKENS or principal in TOKENS.values():
        return Verdict.BAD_TOKEN
    return _for_users(row, principal, place)


def _for_users(row: Row, principal: str, place: str) -> Verdict:
    if principal == "locked":
        return Verdict.FORBIDDEN
    if row.need is Need.ADMIN:
        return Verdict.IN if principal == "staff" else Verdict.FORBIDDEN
    if row.need is Need.USER and not row.is_list:
        return Verdict.IN
    if place != "own" or principal in OUTSIDERS:
        return Verdict.HIDDEN
    enough = at_least(MEMBERS[principal], PLACED.get(row.need, Role.READ))
    return Verdict.IN if enough else Verdict.FORBIDDEN


def served() -> Iterator[tuple[str, str]]:
    """(method, name) of everything outside the admin and the console."""
    for entry in get_resolver().url_patterns:
        if str(entry.pattern) in {"admin/", "admin", "console/", "console", "favicon.ico"}:
            continue  # admin and console have tests of their own; the others only redirect
        for pattern in entry.url_patterns if isinstance(entry, URLResolver) else [entry]:
            assert isinstance(pattern, URLPattern), pattern
            view = getattr(pattern.callback, "cls", None) or getattr(
                pattern.callback, "view_class", None
            )
            for method in METHODS if view is not None else ("get",):
                if view is None or hasattr(view, method):
                    yield method.upper(), str(pattern.name)


def test_every_route_has_a_need_and_a_row() -> None:
    routes = set(served())
    assert routes == set(NEEDS)
    assert routes == {row.key for row in rows()}


def filled(value: Any, things: Things, own: Things) -> Any:
    if isinstance(value, dict):
        return {name: filled(inner, things, own) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, things, own) for inner in value]
    if value == "{attempt}":
        return things.attempt
    return value.format(**asdict(things), own=own) if isinstance(value, str) else value


_OF_GROUP: Final = "JOIN groups g ON g.id = x.group_id WHERE g.name = %(name)s"
SNAPSHOTS: Final = (
    "SELECT to_jsonb(g) - 'updated_at' FROM groups g WHERE name = %(name)s",
    *(
        f"SELECT to_jsonb(x) FROM {table} x {_OF_GROUP}"
        for table in ("memberships", "task_suites", "active_tasks", "archived_tasks", "attachments")
    ),
    f"SELECT to_jsonb(x) FROM group_runners x {_OF_GROUP}",
    f"SELECT to_jsonb(r) FROM runners r JOIN group_runners x ON x.runner_id = r.id {_OF_GROUP}",
)


def snapshot(name: str) -> list[str]:
    found: list[str] = []
    with connection.cursor() as cursor:
        for statement in SNAPSHOTS:
            cursor.execute(statement, {"name": name})
            found += sorted(map(str, cursor.fetchall()))
    return found


class Matrix:
    """Runs the cells of one row after the other and keeps what was wrong."""

    def __init__(self, site: Site) -> None:
        self.people = People()
        self.problems: list[str] = []
        self.cells = 0
        self._site = site
        self._caller = AsgiCaller()
        self._foreign = self.people.lux.things("joe")
        self._absent = nothing()
        self._shared = self._current = self.people.lab.things("ron")

    def run(self, row: Row) -> None:
        own = self._own(row)
        places = {"own": own, "foreign": self._foreign, "absent": self._absent}
        if not row.names_something:
            places = {"own": own}
        before = snapshot("lab")
        let_in: list[tuple[str, str]] = []
        for principal in PRINCIPALS:
            answers: dict[str, Answer] = {}
            for place, things in reversed(places.items()):
                if _says_nothing_new(row, principal, place):
                    continue
                verdict = expected(row, principal, place)
                if verdict is Verdict.IN and not row.barred:
                    let_in.append((principal, place))
                    continue
                answers[place] = self._ask(row, principal, things, own)
                self._check(row, principal, place, verdict, answers)
        if snapshot("lab") != before:
            self._note(row, "-", "-", "a refused request changed something")
        self._let_in(row, let_in, places)

    def _let_in(self, row: Row, cells: list[tuple[str, str]], places: dict[str, Things]) -> None:
        """After all refusals: what is allowed may end the thing it is about."""
        done = False
        for principal, place in cells:
            if place != "own":
                continue  # only staff and open routes; the other tenant's things stay as they are
            answer = self._ask(row, principal, places[place], places["own"])
            gone = done and row.method != "GET" and answer.status in {404, 409}
            missing = row.route in MISSING and answer.status == 404
            fine = answer.status not in {401, 403, 404} or missing or gone
            if not fine or answer.status >= 500 or answer.code.startswith("auth"):
                self._note(row, principal, place, f"should be let in: {answer}")
            if (
                principal in OUTSIDERS
                and row.need is Need.USER
                and places["own"].task in answer.body
            ):
                self._note(row, principal, place, f"hears of a task of another group: {answer}")
            if row.names_something and not (missing or gone or row.silent):
                absent = self._ask(row, principal, self._absent, places["own"])
                if self._told(answer, places[place]) == self._told(absent, self._absent):
                    self._note(row, principal, place, f"let in, but as if absent: {answer}")
            done = True

    def _own(self, row: Row) -> Things:
        own = self._shared if row.method == "GET" else self.people.lab.things("ron")
        self._current = own
        if not row.names("user"):
            return own
        user = new_user(f"u{self.cells}")
        return Things(**{**asdict(own), "user": user.username})

    def _ask(self, row: Row, principal: str, things: Things, own: Things) -> Answer:
        self.cells += 1
        target = filled(row.target, things, own)
        body = filled(row.body, things, own)
        header = self.people.header(principal, own)
        return self._site.run(self._caller.ask(row.method, target, header, body))

    def _check(
        self, row: Row, principal: str, place: str, verdict: Verdict, answers: dict[str, Answer]
    ) -> None:
        answer = answers[place]
        fine = _fits(row, verdict, answer)
        if "absent" in answers and verdict is not Verdict.NO_HEADER:
            things = {"own": self._current, "foreign": self._foreign, "absent": self._absent}[place]
            hidden = self._told(answers["absent"], self._absent)
            if verdict is Verdict.HIDDEN or place == "foreign":
                told = self._told(answer, things)
                if told != hidden:
                    both = zip(told, hidden, strict=True)
                    differing = [pair for pair in both if pair[0] != pair[1]]
                    self._note(row, principal, place, f"differs from absent: {differing}")
        if not fine:
            self._note(row, principal, place, f"expected {verdict.name}: {answer}")

    def _told(self, answer: Answer, things: Things) -> tuple[object, ...]:
        body = answer.body
        for name, value in [*asdict(things).items(), *asdict(self._current).items()]:
            body = re.sub(rf"\b{re.escape(str(value))}\b", f"<{name}>", body)
        headers = [pair for pair in answer.headers if pair[0] not in VOLATILE]
        return answer.status, headers, body

    def _note(self, row: Row, principal: str, place: str, text: str) -> None:
        self.problems.append(f"{row.method} {row.target} as {principal}, {place}: {text}")


# Nothing was uploaded for the tasks and keys of this world: being let in means hearing so.
MISSING: Final = frozenset({
    "task-artifact", "task-artifact-download", "admin-task-artifact", "worker-artifact",
    "group-attachments-query", "group-attachments-download-list", "task", "manager-watched-task",
})  # fmt: skip


def _says_nothing_new(row: Row, principal: str, place: str) -> bool:
    """The rival owns what is foreign to `lab`; of the bad tokens one is tried on every thing.

    Open routes are asked by nobody and by somebody: the OpenAPI document takes seconds each time.
    """
    if row.need is Need.NOBODY:
        return principal not in {"anonymous", "admin"}
    if principal == "rival":
        return place == "foreign"
    return principal in BAD_TOKENS and principal != "revoked" and place != "own"


def _fits(row: Row, verdict: Verdict, answer: Answer) -> bool:
    match verdict:
        case Verdict.NO_HEADER:
            return answer.status in {400, 401} and answer.code.startswith("auth")
        case Verdict.BAD_TOKEN:
            return answer.status == 401
        case Verdict.FORBIDDEN:
            return answer.status == 403 or (row.is_list and answer.status < 300)
        case Verdict.HIDDEN:
            return row.is_list or answer.status in {400, 401, 403, 404}
        case Verdict.IN:
            return answer.status == row.barred


def test_nobody_reaches_what_is_not_theirs(
    site: Site, clean_redis: redis.Redis, request: pytest.FixtureRequest, figure: Figure
) -> None:
    # A line per request would be a third of the time.
    logging.disable(logging.WARNING)
    request.addfinalizer(lambda: logging.disable(logging.NOTSET))
    matrix = Matrix(site)
    started, worked = time.monotonic(), time.process_time()
    foreign = snapshot("lux")
    for row in rows():
        matrix.run(row)
    assert not matrix.problems, "\n".join(matrix.problems)
    assert snapshot("lux") == foreign
    took_s, cpu_s = time.monotonic() - started, time.process_time() - worked
    print(f"{matrix.cells} requests in {took_s:.1f} s, {cpu_s:.1f} s of CPU")
    figure("access matrix: cells", matrix.cells, "requests", at_least=2000)
    figure("access matrix: wrong cells", len(matrix.problems), "requests", at_most=0)
