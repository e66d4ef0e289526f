"""Tokens in the system's keyring: kept there when it takes them, and never in two places."""

import sys
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeyring
from keyring.backends.null import Keyring as ForgetfulKeyring
from keyring.errors import KeyringLocked, PasswordDeleteError
from typing_extensions import override

from mitosis_client.errors import ConfigError, NotLoggedIn
from mitosis_client.settings import Home

URL = "http://a"


class MemoryKeyring(KeyringBackend):
    """As the real ones behave, without a desktop session."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[tuple[str, str], str] = {}
        self.is_locked = False
        self.forgets = False

    @override
    def get_password(self, service: str, username: str) -> str | None:
        if self.is_locked:
            raise KeyringLocked("the prompt was dismissed")
        return self.held.get((service, username))

    @override
    def set_password(self, service: str, username: str, password: str) -> None:
        if self.is_locked:
            raise KeyringLocked("the prompt was dismissed")
        if not self.forgets:
            self.held[service, username] = password

    @override
    def delete_password(self, service: str, username: str) -> None:
        if (service, username) not in self.held:
            raise PasswordDeleteError("not there")
        del self.held[service, username]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "mitosis")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> MemoryKeyring:
    found = MemoryKeyring()
    monkeypatch.setattr(keyring, "get_keyring", lambda: found)
    return found


def written(home: Home) -> str:
    return (home.folder / "tokens.json").read_text()


def test_a_token_goes_to_the_keyring_and_not_to_the_file(home: Home, backend: MemoryKeyring):
    assert home.save_token(URL, "me", "secret", store="auto") == "keyring"
    assert "secret" not in written(home)
    assert home.token(URL, "me") == home.token(f"{URL}/", None) == "secret"
    home.forget_token(URL, "me")
    assert home.token(URL, "me") is None
    assert not backend.held


def test_a_keyring_that_refuses_or_forgets_is_not_trusted(home: Home, backend: MemoryKeyring):
    backend.is_locked = True
    assert home.save_token(URL, "me", "one", store="auto") == "file"
    backend.is_locked, backend.forgets = False, True
    assert home.save_token(URL, "me", "two", store="auto") == "file"
    assert home.token(URL, "me") == "two"
    with pytest.raises(ConfigError, match="no keyring"):
        home.save_token(URL, "me", "three", store="keyring")


def test_a_keyring_that_does_not_open_any_more_says_what_to_do(home: Home, backend: MemoryKeyring):
    home.save_token(URL, "me", "secret", store="auto")
    backend.is_locked = True
    with pytest.raises(NotLoggedIn, match="MITO_TOKENS=file"):
        home.token(URL, "me")


def test_a_token_is_in_one_place_only(home: Home, backend: MemoryKeyring):
    home.save_token(URL, "me", "old", store="auto")
    assert home.save_token(URL, "me", "new", store="file") == "file"
    assert not backend.held
    assert home.token(URL, "me") == "new"
    home.save_token(URL, "me", "newest", store="auto")
    assert "new" not in written(home)


@pytest.mark.parametrize("kind", [NoKeyring, ForgetfulKeyring])
def test_without_a_keyring_the_file_is_used(
    home: Home, monkeypatch: pytest.MonkeyPatch, kind: type[KeyringBackend]
):
    monkeypatch.setattr(keyring, "get_keyring", kind)
    assert home.save_token(URL, "me", "secret", store="auto") == "file"


def test_without_the_package_the_file_is_used(home: Home, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "keyring", None)
    assert home.save_token(URL, "me", "secret", store="auto") == "file"
    assert home.token(URL, "me") == "secret"
