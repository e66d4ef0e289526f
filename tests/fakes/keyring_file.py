"""A keyring that real processes share: a file in the home directory. For tests only."""

import json
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError
from typing_extensions import override


class FileKeyring(KeyringBackend):
    priority = 1

    @property
    def _file(self) -> Path:
        return Path.home() / "keyring.json"

    def _read(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._file.read_text()) if self._file.exists() else {}
        return found

    @override
    def get_password(self, service: str, username: str) -> str | None:
        return self._read().get(f"{service} {username}")

    @override
    def set_password(self, service: str, username: str, password: str) -> None:
        self._file.write_text(json.dumps({**self._read(), f"{service} {username}": password}))

    @override
    def delete_password(self, service: str, username: str) -> None:
        held = self._read()
        if held.pop(f"{service} {username}", None) is None:
            raise PasswordDeleteError("not there")
        self._file.write_text(json.dumps(held))
