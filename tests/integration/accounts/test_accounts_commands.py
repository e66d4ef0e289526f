"""Management commands, and Django's own ones that touch passwords."""

import io
from collections.abc import Callable

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from accounts.models import User
from accounts.services.sessions import issue_user_token
from mitosis_protocol.enums import UserState
from tests.integration.accounts.api_client import PASSWORD, Api

pytestmark = pytest.mark.django_db


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n"))


def test_create_admin_makes_one_that_logs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, PASSWORD)
    call_command("create_admin", "root")
    token = Api(Client()).login("root").json()["token"]
    api = Api(Client(), token)
    assert api.post("/admin/users/root/group-quota", {"group_quota": "9"}).status_code == 200


def test_create_admin_lets_a_locked_out_user_back_in(
    monkeypatch: pytest.MonkeyPatch, make_user: Callable[..., User]
) -> None:
    make_user("ada", password="forgotten")
    User.objects.update(state=UserState.DELETED)
    typed(monkeypatch, PASSWORD)
    call_command("create_admin", "ada")
    assert Api(Client()).login("ada").status_code == 200
    assert User.objects.get(username="ada").is_staff


@pytest.mark.parametrize(("name", "password"), [("root", "short"), ("a b", PASSWORD), ("root", "")])
def test_create_admin_refuses(monkeypatch: pytest.MonkeyPatch, name: str, password: str) -> None:
    typed(monkeypatch, password)
    with pytest.raises(CommandError):
        call_command("create_admin", name)
    assert not User.objects.exists()


def test_createsuperuser_says_what_to_use_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", PASSWORD)
    with pytest.raises(CommandError, match="create_admin"):
        call_command("createsuperuser", "--noinput", "--username", "root")


def test_changepassword_ends_the_tokens_too(
    monkeypatch: pytest.MonkeyPatch, make_user: Callable[..., User]
) -> None:
    token = issue_user_token(make_user("ada"))
    monkeypatch.setattr("getpass.getpass", lambda prompt: "another long one")
    call_command("changepassword", "ada")
    assert Api(Client(), token).get("/auth").status_code == 401
    assert Api(Client()).login("ada", "another long one").status_code == 200
