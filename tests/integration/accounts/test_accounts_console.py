"""The console's pages for users, groups, the audit log and runners, as an operator clicks them."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from accounts.actors import SYSTEM
from accounts.models import AuditEntry, Group, Membership, User
from accounts.services.groups import put_members
from accounts.services.sessions import issue_user_token
from mitosis_protocol.enums import GroupState, Role, RunnerKind, UserState
from runners.models import Runner
from runners.services.groups import put_group_roles
from runners.services.registration import create_runner
from tests.integration.accounts.api_client import PASSWORD, Api

pytestmark = pytest.mark.django_db

USERS, GROUPS = "admin:accounts_user", "admin:accounts_group"


@pytest.fixture
def console(make_user: Callable[..., User]) -> Client:
    make_user("root", admin=True)
    browser = Client()
    login = {"username": "root", "password": PASSWORD}
    assert browser.post("/admin/login/?next=/admin/", login).status_code == 302
    return browser


def run(console: Client, page: str, action: str, *rows: object) -> None:
    chosen = [row.pk for row in rows]  # type: ignore[attr-defined]
    url = reverse(f"{page}_changelist")
    answer = console.post(url, {"action": action, "_selected_action": chosen})
    assert answer.status_code == 302


def test_plain_users_do_not_get_in(make_user: Callable[..., User]) -> None:
    make_user("ada")
    browser = Client()
    answer = browser.post("/admin/login/", {"username": "ada", "password": PASSWORD})
    assert answer.status_code == 200
    assert b"staff account" in answer.content
    assert browser.get("/admin/").status_code == 302


def test_guessing_in_the_console_is_throttled_like_the_api(
    make_user: Callable[..., User],
) -> None:
    make_user("root", admin=True)
    browser = Client()
    for _ in range(10):
        browser.post("/admin/login/", {"username": "root", "password": "wrong"})
    answer = browser.post("/admin/login/", {"username": "root", "password": PASSWORD})
    assert answer.status_code == 200
    assert Api(Client()).login("root").status_code == 429
    outcomes = AuditEntry.objects.filter(action="console.login").order_by("-id")
    assert outcomes[0].outcome == "throttled"


def test_a_locked_operator_is_out_at_once(console: Client) -> None:
    assert console.get("/admin/").status_code == 200
    User.objects.filter(username="root").update(state=UserState.LOCKED)
    assert console.get("/admin/").status_code == 302


def test_adding_a_user_makes_its_group(console: Client) -> None:
    form = {"username": "eve", "new_password": "a long enough one", "is_staff": ""}
    assert console.post(reverse(f"{USERS}_add"), form).status_code == 302
    eve = User.objects.get(username="eve")
    assert Membership.objects.get(user=eve).group.name == "eve"
    assert Api(Client()).login("eve", "a long enough one").status_code == 200


@pytest.mark.parametrize(
    ("username", "password", "complaint"),
    [
        ("root", "a long enough one", b"has this name"),
        ("lab", "a long enough one", b"has this name"),
        ("a b", "a long enough one", b"A-Z a-z"),
        ("eve", "short", b"too short"),
        ("eve", "", b"required"),
    ],
)
def test_bad_new_users_are_refused_by_the_form(
    console: Client, username: str, password: str, complaint: bytes
) -> None:
    Group.objects.create(name="lab", creator=User.objects.get(username="root"))
    form = {"username": username, "new_password": password}
    answer = console.post(reverse(f"{USERS}_add"), form)
    assert answer.status_code == 200
    assert complaint in answer.content
    assert User.objects.count() == 1


def test_changing_a_user_goes_through_the_services(
    console: Client, make_user: Callable[..., User]
) -> None:
    ada = make_user("ada")
    token = issue_user_token(ada)
    url = reverse(f"{USERS}_change", args=[ada.pk])
    assert b"argon2" not in console.get(url).content
    form = {"is_staff": "on", "group_quota": "3", "new_password": "a long enough one"}
    assert console.post(url, form).status_code == 302
    ada.refresh_from_db()
    assert (ada.is_staff, ada.group_quota) == (True, 3)
    assert Api(Client(), token).get("/auth").status_code == 401
    assert Api(Client()).login("ada", "a long enough one").status_code == 200
    actions = AuditEntry.objects.filter(object="ada", actor_id="root").values_list("action")
    assert {"user.admin", "user.group_quota", "user.password"} <= {name for (name,) in actions}


def test_an_empty_password_field_keeps_the_password(
    console: Client, make_user: Callable[..., User]
) -> None:
    ada = make_user("ada")
    url = reverse(f"{USERS}_change", args=[ada.pk])
    console.post(url, {"group_quota": "3", "new_password": ""})
    assert Api(Client()).login("ada").status_code == 200


def test_state_actions(console: Client, make_user: Callable[..., User]) -> None:
    ada, bob = make_user("ada"), make_user("bob")
    token = issue_user_token(ada)
    run(console, USERS, "end_sessions", ada)
    assert Api(Client(), token).get("/auth").status_code == 401
    for action, state in (
        ("lock", UserState.LOCKED),
        ("mark_deleted", UserState.DELETED),
        ("activate", UserState.ACTIVE),
    ):
        run(console, USERS, action, ada, bob)
        ada.refresh_from_db()
        bob.refresh_from_db()
        assert ada.state is bob.state is state


def test_nothing_is_deleted_by_hand(console: Client, make_user: Callable[..., User]) -> None:
    ada = make_user("ada")
    group = Group.objects.get(name="ada")
    assert console.get(reverse(f"{USERS}_delete", args=[ada.pk])).status_code == 403
    assert console.get(reverse(f"{GROUPS}_delete", args=[group.pk])).status_code == 403


def test_lists_filter_search_and_do_not_grow_queries(
    console: Client, make_user: Callable[..., User], django_assert_max_num_queries: Callable
) -> None:
    for n in range(15):
        make_user(f"user{n}")
    for page in (USERS, GROUPS):
        with django_assert_max_num_queries(8):
            found = console.get(reverse(f"{page}_changelist"), {"q": "user"})
        assert len(found.context["cl"].result_list) == 15
        filtered = console.get(reverse(f"{page}_changelist"), {"state__exact": "Locked"})
        assert len(filtered.context["cl"].result_list) == 0
        active = console.get(reverse(f"{page}_changelist"), {"state__exact": "Active"})
        assert len(active.context["cl"].result_list) >= 15


def test_adding_a_group_makes_the_operator_its_admin(console: Client) -> None:
    assert console.post(reverse(f"{GROUPS}_add"), {"name": "lab"}).status_code == 302
    group = Group.objects.get(name="lab")
    assert group.creator.username == "root"
    assert Membership.objects.get(group=group).role is Role.ADMIN


def members_form(group: Group, *rows: dict[str, object]) -> dict[str, object]:
    initial = sum(1 for row in rows if row.get("id"))
    form: dict[str, object] = {
        "state": group.state.value,
        "storage_quota": group.storage_quota,
        "memberships-TOTAL_FORMS": len(rows),
        "memberships-INITIAL_FORMS": initial,
        "memberships-MIN_NUM_FORMS": 0,
        "memberships-MAX_NUM_FORMS": 1000,
    }
    for n, row in enumerate(rows):
        form |= {f"memberships-{n}-{name}": value for name, value in row.items()}
        form[f"memberships-{n}-group"] = group.pk
    return form


def test_members_are_changed_through_the_services(
    console: Client, make_user: Callable[..., User], django_assert_max_num_queries: Callable
) -> None:
    ada, bob, eve, mal = (make_user(name) for name in ("ada", "bob", "eve", "mal"))
    group = Group.objects.get(name="ada")
    put_members(actor=SYSTEM, group=group, roles={"bob": Role.READ, "eve": Role.READ})
    rows = {row.user.username: row for row in Membership.objects.filter(group=group)}
    url = reverse(f"{GROUPS}_change", args=[group.pk])
    with django_assert_max_num_queries(12):
        assert console.get(url).status_code == 200
    form = members_form(
        group,
        {"id": rows["ada"].pk, "user": ada.pk, "role": "Admin"},
        {"id": rows["bob"].pk, "user": bob.pk, "role": "Write"},
        {"id": rows["eve"].pk, "user": eve.pk, "role": "Read", "DELETE": "on"},
        {"id": "", "user": mal.pk, "role": "Admin"},
    )
    assert console.post(url, form).status_code == 302
    now = {row.user.username: row.role for row in Membership.objects.filter(group=group)}
    assert now == {"ada": Role.ADMIN, "bob": Role.WRITE, "mal": Role.ADMIN}
    last = AuditEntry.objects.filter(object="ada", actor_id="root").order_by("-id")[0]
    assert last.detail == {"roles": {"bob": "Write", "mal": "Admin"}}


def test_a_row_given_to_another_user_removes_the_first(
    console: Client, make_user: Callable[..., User]
) -> None:
    ada, _, eve = (make_user(name) for name in ("ada", "bob", "eve"))
    group = Group.objects.get(name="ada")
    put_members(actor=SYSTEM, group=group, roles={"bob": Role.READ})
    rows = {row.user.username: row for row in Membership.objects.filter(group=group)}
    form = members_form(
        group,
        {"id": rows["ada"].pk, "user": ada.pk, "role": "Admin"},
        {"id": rows["bob"].pk, "user": eve.pk, "role": "Write"},
    )
    assert console.post(reverse(f"{GROUPS}_change", args=[group.pk]), form).status_code == 302
    now = {row.user.username: row.role for row in Membership.objects.filter(group=group)}
    assert now == {"ada": Role.ADMIN, "eve": Role.WRITE}


def test_state_and_quota_of_a_group(console: Client, make_user: Callable[..., User]) -> None:
    make_user("ada")
    group = Group.objects.get(name="ada")
    form = members_form(group) | {"state": "Locked", "storage_quota": "5"}
    assert console.post(reverse(f"{GROUPS}_change", args=[group.pk]), form).status_code == 302
    group.refresh_from_db()
    assert (group.state, group.storage_quota) == (GroupState.LOCKED, 5)


def test_the_audit_log_is_shown_and_never_editable(console: Client) -> None:
    entry = AuditEntry.objects.order_by("-id")[0]
    page = console.get(reverse("admin:accounts_auditentry_changelist"), {"q": entry.actor_id})
    assert page.status_code == 200
    url = reverse("admin:accounts_auditentry_change", args=[entry.pk])
    assert console.get(url).status_code == 200
    assert console.post(url, {"action": "x"}).status_code == 403
    assert console.get(reverse("admin:accounts_auditentry_add")).status_code == 403
    delete = reverse("admin:accounts_auditentry_delete", args=[entry.pk])
    assert console.post(delete, {"post": "yes"}).status_code == 403


def test_names_cannot_inject_markup(console: Client) -> None:
    evil = "<script>alert(1)</script>"
    Api(Client()).login(evil, "wrong")
    page = console.get(reverse("admin:accounts_auditentry_changelist"))
    assert evil.encode() not in page.content
    assert b"&lt;script&gt;" in page.content


def test_runners_are_listed_and_revoked(
    console: Client, make_user: Callable[..., User], django_assert_max_num_queries: Callable
) -> None:
    ada = make_user("ada")
    runners = [
        create_runner(
            actor=SYSTEM,
            owner=ada,
            kind=RunnerKind.MANAGER,
            tags=["gpu"],
            labels=[],
            lease=timedelta(seconds=60),
        )
        for _ in range(5)
    ]
    put_group_roles(actor=SYSTEM, asked_by=ada, runner=runners[0], roles={"ada": Role.ADMIN})
    url = reverse("admin:runners_runner_changelist")
    with django_assert_max_num_queries(8):
        page = console.get(url, {"q": "ada"})
    assert len(page.context["cl"].result_list) == 5
    for text in (str(runners[0].uuid), "nonsense", "' OR 1=1 --"):
        assert console.get(url, {"q": text}).status_code == 200
    detail = console.get(reverse("admin:runners_runner_change", args=[runners[0].pk]))
    assert detail.status_code == 200
    run(console, "admin:runners_runner", "revoke", runners[0])
    revoked = Runner.objects.filter(revoked_at__isnull=False)
    assert [runner.pk for runner in revoked] == [runners[0].pk]
