"""The console's pages for managers: they open, they do not grow with the fleet, actions work."""

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.services.users import create_user
from managers.models import NodeManager
from managers.services.config import read_config
from managers.services.scheduler import run_pass
from mitosis_protocol.enums import DesiredState
from tests.integration.accounts.api_client import PASSWORD, digest
from tests.integration.managers.fleet import connect, register
from tests.integration.suites.campaign import make_suite, submit

pytestmark = pytest.mark.django_db(transaction=True)

PAGES = ("nodemanager", "suitemanager", "suiteassignment", "preparationfailure", "groupshare")


@pytest.fixture
def root() -> User:
    return create_user(
        actor=SYSTEM, username="root", md5_password=bytes(digest(PASSWORD)), is_admin=True
    )


@pytest.fixture
def console(root: User) -> Client:
    browser = Client()
    login = {"username": root.username, "password": PASSWORD}
    assert browser.post("/admin/login/?next=/admin/", login).status_code == 302
    return browser


def queries_of(console: Client, page: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert console.get(f"/admin/managers/{page}/").status_code == 200
    return len(queries)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_costs_the_same_whatever_the_fleet(console: Client, root: User, page: str) -> None:
    suite = make_suite(root)
    submit(suite, 40)

    def grow() -> None:
        connect(*(register(root) for _ in range(3)))
        run_pass()

    grow()
    console.get(f"/admin/managers/{page}/")
    few = queries_of(console, page)
    grow()
    assert queries_of(console, page) <= few


def test_actions_call_the_services(console: Client, root: User) -> None:
    manager = register(root)
    for action, wanted in (
        ("drain", DesiredState.DRAINING),
        ("undrain", DesiredState.ACTIVE),
        ("quarantine", DesiredState.QUARANTINED),
        ("release", DesiredState.ACTIVE),
        ("shut_down", DesiredState.SHUTDOWN),
    ):
        body = {"action": action, "_selected_action": [manager.pk]}
        console.post("/admin/managers/nodemanager/", body)
        manager.refresh_from_db()
        assert manager.desired_state is wanted
    console.post(
        "/admin/managers/nodemanager/", {"action": "revoke", "_selected_action": [manager.pk]}
    )
    manager.refresh_from_db()
    assert manager.revoked_at is not None


def test_secrets_of_managers_are_not_shown(console: Client, root: User) -> None:
    manager = register(root)
    node = NodeManager.objects.get(pk=manager.pk)
    page = console.get(f"/admin/managers/nodemanager/{manager.pk}/change/")
    assert page.status_code == 200
    assert node.refresh_hash not in page.content.decode()


def test_the_schedulers_numbers_are_changed_through_the_service(console: Client) -> None:
    before = read_config()
    fields = (
        "suites_enabled",
        "lease_duration_s",
        "idle_threshold_s",
        "heartbeat_s",
        "quarantine_failures",
        "quarantine_window_s",
        "probe_after_s",
    )
    form = {name: getattr(before, name) for name in fields}
    path = "/admin/managers/schedulerconfig/1/change/"
    assert console.post(path, {**form, "lease_duration_s": 60}).status_code == 302
    after = read_config()
    assert (after.lease_duration_s, after.version) == (60, before.version + 1)
    console.post(path, {**form, "lease_duration_s": 60, "heartbeat_s": 100})
    assert read_config().heartbeat_s == before.heartbeat_s
