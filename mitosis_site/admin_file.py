"""The file that tells people and scripts how to log in to a stack: address, user, password.

Written by the bootstrap command (0600) before the user exists, so that a crash in between leaves a
password that the next run will use, never a user whose password nobody knows.
"""

import json
import secrets
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from mitosis_site.keys import write_atomically

# 24 characters, 144 bits: nobody has to remember it.
PASSWORD_BYTES: Final = 18
MODE: Final = 0o600


class AdminFileError(Exception):
    """The file is there and cannot be used."""


@dataclass(frozen=True, slots=True)
class AdminLogin:
    username: str
    password: str = field(repr=False)
    url: str = ""


def new_login(url: str, username: str) -> AdminLogin:
    """With a fresh random password."""
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    return AdminLogin(username=username, password=password, url=url)


def read_login(path: Path) -> AdminLogin | None:
    """None when there is no file; AdminFileError when it does not hold a login."""
    try:
        login = msgspec.json.decode(path.read_bytes(), type=AdminLogin)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AdminFileError(f"{path} is damaged; restore it or move it away") from error
    if not login.username or not login.password:
        raise AdminFileError(f"{path} lacks a user name or a password")
    return login


def write_login(path: Path, login: AdminLogin) -> None:
    write_atomically(path, json.dumps(asdict(login), indent=2).encode() + b"\n", mode=MODE)


def refresh_url(path: Path, login: AdminLogin, url: str) -> None:
    """The port may be another one at each start."""
    if login.url != url or path.stat().st_mode & 0o777 != MODE:
        write_login(path, replace(login, url=url))
