"""Settings of a user's side: defaults < user file < local file < MITO_* < flags; and tokens.

The client's only reader of the environment. A context is a named coordinator: the current one
counts as part of the user file, one chosen by variable or flag counts as that variable or flag.
Tokens are kept by address, so a file in a foreign directory cannot have one sent elsewhere; in
the system's keyring when there is one, else in a private file.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from mitosis_client.errors import ConfigError, NotLoggedIn
from mitosis_client.keyrings import find_keyring

T = TypeVar("T")

PREFIX: Final = "MITO_"
SECTION: Final = "client"
LOCAL_FILE: Final = "mitosis.toml"
OUTPUTS: Final = ("table", "json", "quiet")
TOKEN_STORES: Final = ("auto", "file", "keyring")
KEYS: Final = ("coordinator", "user", "group", "output", "tokens")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a command needs to know before it starts."""

    coordinator: str = "http://127.0.0.1:5000"
    user: str | None = None
    group: str | None = None
    output: str = "table"
    tokens: str = "auto"

    def __post_init__(self) -> None:
        if self.output not in OUTPUTS:
            raise ConfigError(f"output: one of {', '.join(OUTPUTS)}, not {self.output!r}")
        if self.tokens not in TOKEN_STORES:
            raise ConfigError(f"tokens: one of {', '.join(TOKEN_STORES)}, not {self.tokens!r}")
        if not self.coordinator.startswith(("http://", "https://")):
            raise ConfigError(f"coordinator: {self.coordinator!r} is not an http(s) address")


class Contexts(msgspec.Struct, kw_only=True):
    """Coordinators by name, and which one is meant when none is named."""

    current: str | None = None
    contexts: dict[str, dict[str, str]] = {}


class Home:
    """The user's directory: `client.toml` by hand, `contexts.json` and `tokens.json` by us."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._contexts = folder / "contexts.json"
        self._tokens = folder / "tokens.json"

    @property
    def user_file(self) -> Path:
        return self.folder / "client.toml"

    def contexts(self) -> Contexts:
        return _decode(self._contexts, Contexts, Contexts())

    def save_contexts(self, contexts: Contexts) -> None:
        self._write(self._contexts, contexts)

    def token(self, url: str, user: str | None) -> str | None:
        """The token for that address; of that user, or the only one there. Raises NotLoggedIn."""
        url = url.rstrip("/")
        kept = self._all_tokens().get(url, {})
        if user is None and len(kept) == 1:
            [user] = kept
        if user is None or user not in kept:
            return None
        token = kept[user]
        return self._from_keyring(url, user) if token is None else token

    def save_token(self, url: str, user: str, token: str, *, store: str = "file") -> str:
        """Returns where it is: `keyring` or `file`. Raises ConfigError if the keyring is a must."""
        url = url.rstrip("/")
        keyring = None if store == "file" else find_keyring()
        is_in_keyring = keyring is not None and keyring.keep(url, user, token)
        if store == "keyring" and not is_in_keyring:
            raise ConfigError("tokens: there is no keyring here that takes the token")
        tokens = self._all_tokens()
        kept = tokens.setdefault(url, {})
        if keyring is None and kept.get(user, "") is None:
            self.forget_token(url, user)  # an older one must not stay behind in the keyring
        kept[user] = None if is_in_keyring else token
        self._write(self._tokens, tokens)
        return "keyring" if is_in_keyring else "file"

    def forget_token(self, url: str, user: str) -> None:
        url = url.rstrip("/")
        tokens = self._all_tokens()
        kept = tokens.get(url, {})
        if user not in kept:
            return
        if kept.pop(user) is None and (keyring := find_keyring()) is not None:
            keyring.forget(url, user)
        self._write(self._tokens, {address: users for address, users in tokens.items() if users})

    def _from_keyring(self, url: str, user: str) -> str:
        keyring = find_keyring()
        token = None if keyring is None else keyring.read(url, user)
        if token is None:
            raise NotLoggedIn(
                f"the keyring does not give the token of {user} at {url}: unlock it, or "
                "run `mitosis login` again (MITO_TOKENS=file keeps it in a private file)"
            )
        return token

    def _all_tokens(self) -> dict[str, dict[str, str | None]]:
        """By address and user; None stands for a token that the keyring holds."""
        if self._tokens.exists() and self._tokens.stat().st_mode & 0o077:
            raise ConfigError(f"{self._tokens}: others can read it; chmod 600 it")
        return _decode(self._tokens, dict[str, dict[str, str | None]], {})

    def _write(self, path: Path, value: object) -> None:
        """Private from its first byte on, and whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(msgspec.json.format(msgspec.json.encode(value)))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def environment() -> Mapping[str, str]:
    return os.environ  # noqa: TID251 - the client's one reader of the environment


def find_home(env: Mapping[str, str]) -> Home:
    base = env.get("XDG_CONFIG_HOME")
    return Home((Path(base) if base else Path.home() / ".config") / "mitosis")


def read_settings(
    home: Home, env: Mapping[str, str], local: Path, flags: Mapping[str, str | None]
) -> Settings:
    """All layers as one. Raises ConfigError."""
    contexts = home.contexts()
    by_flag, by_env = flags.get("context"), env.get(f"{PREFIX}CONTEXT")
    layers: list[Mapping[str, str]] = [_file(home.user_file)]
    if by_flag is None and by_env is None and contexts.current is not None:
        layers.append(_context(contexts, contexts.current))
    layers.append(_file(local / LOCAL_FILE))
    if by_flag is None and by_env is not None:
        layers.append(_context(contexts, by_env))
    layers.append({key: env[PREFIX + key.upper()] for key in KEYS if env.get(PREFIX + key.upper())})
    if by_flag is not None:
        layers.append(_context(contexts, by_flag))
    layers.append({key: value for key in KEYS if (value := flags.get(key)) is not None})
    merged: dict[str, str] = {}
    for layer in layers:
        merged |= layer
    return Settings(**merged)


def _context(contexts: Contexts, name: str) -> Mapping[str, str]:
    found = contexts.contexts.get(name)
    if found is None:
        known = ", ".join(sorted(contexts.contexts)) or "none yet"
        raise ConfigError(f"no context is called {name!r} (known: {known})")
    return found


def _file(path: Path) -> Mapping[str, str]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    section = document.get(SECTION, {})
    if not isinstance(section, dict) or not all(isinstance(v, str) for v in section.values()):
        raise ConfigError(f"{path}: [{SECTION}] must be a table of texts")
    unknown = sorted(section.keys() - set(KEYS))
    if unknown:
        raise ConfigError(f"{path}: unknown in [{SECTION}]: {', '.join(unknown)}")
    return section


def _decode(path: Path, kind: type[T], default: T) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return default
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
