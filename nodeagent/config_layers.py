"""How settings are read: one value from a flag, a variable or a TOML file, and layers of them.

Pure but for the file. Used by config (workers) and agent_config (the agent); every reader raises
ValueError with what was expected, never with the value, which may be a secret in the wrong place.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from typing_extensions import override

from mitosis_protocol.durations import parse_nanoseconds
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_WORKERS
from nodeagent.errors import ConfigInvalid

Reader: TypeAlias = Callable[[object], object]
# By the name outside: the field inside, and how its value is read.
Fields: TypeAlias = Mapping[str, tuple[str, Reader]]

LOG_FORMATS = ("console", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_INSTANCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class Secret:
    """A text that does not show itself in logs, tracebacks or `repr`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself; for the one call that needs it."""
        return self._text

    @override
    def __repr__(self) -> str:
        return "Secret(***)"


def read_layers(
    fields: Fields,
    *,
    section: str,
    prefix: str,
    file: tuple[Path, bool],
    env: Mapping[str, str],
    flags: Mapping[str, object],
) -> dict[str, object]:
    """TOML < environment < flags. `file` is its path and whether it has to exist."""
    settings: dict[str, object] = {}
    path, is_required = file
    for source, layer in (
        (str(path), _read_file(path, fields, section, is_required=is_required)),
        ("the environment", _read_environment(env, fields, prefix)),
        ("the command line", flags),
    ):
        settings |= _read_layer(layer, fields, source)
    return settings


def base_dir(env: Mapping[str, str], variable: str, below_home: str) -> Path:
    """An XDG directory, or what it defaults to."""
    given = env.get(variable)
    return Path(given) if given else Path(env.get("HOME") or Path.home()) / below_home


def _read_file(
    file: Path, fields: Fields, section_name: str, *, is_required: bool
) -> Mapping[str, object]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if is_required:
            raise ConfigInvalid(f"{file}: no such file") from error
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigInvalid(f"{file}: {error}") from error
    section = document.get(section_name, {})
    if not isinstance(section, dict):
        raise ConfigInvalid(f"{file}: [{section_name}] must be a table")
    unknown = sorted(key for key in section if _field_of(fields, key) is None)
    if unknown:
        raise ConfigInvalid(f"{file}: unknown settings in [{section_name}]: {', '.join(unknown)}")
    return section


def _read_environment(env: Mapping[str, str], fields: Fields, prefix: str) -> Mapping[str, object]:
    """Only names we know: a command of a worker inside a task sees MITO_ names of ours too."""
    settings = {
        name.removeprefix(prefix).lower(): value
        for name, value in env.items()
        if name.startswith(prefix)
    }
    return {key: value for key, value in settings.items() if _field_of(fields, key) is not None}


def _read_layer(layer: Mapping[str, object], fields: Fields, source: str) -> dict[str, object]:
    settings: dict[str, object] = {}
    for key, value in layer.items():
        entry = _field_of(fields, key)
        if entry is None or value is None:
            continue
        field, read = entry
        try:
            settings[field] = read(value)
        except (InvalidValue, ValueError) as error:
            # The value itself stays out of the message: it may be a password in the wrong place.
            raise ConfigInvalid(f"{key} from {source}: {error}") from error
    return settings


def _field_of(fields: Fields, key: str) -> tuple[str, Reader] | None:
    return fields.get(key.replace("-", "_"))


def as_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text")
    return value


def as_url(value: object) -> str:
    text = as_text(value).rstrip("/")
    if not text.startswith(("http://", "https://")):
        raise ValueError("expected an http:// or https:// address")
    return text


def as_address(value: object) -> tuple[str, int]:
    host, colon, port = as_text(value).rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError("expected HOST:PORT")
    return host.strip("[]"), int(port)


def as_path(value: object) -> Path:
    return value if isinstance(value, Path) else Path(as_text(value)).expanduser()


def as_secret(value: object) -> Secret:
    return value if isinstance(value, Secret) else Secret(as_text(value))


def as_seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return parse_nanoseconds(as_text(value)) / 1e9


def as_interval(value: object) -> float:
    seconds = as_seconds(value)
    if seconds <= 0:
        raise ValueError("expected more than 0 s")
    return seconds


def as_names(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ValueError("expected a list of texts, or one text with commas")
    return tuple(dict.fromkeys(item.strip() for item in items if item.strip()))


def as_count(value: object) -> int:
    if (
        isinstance(value, bool)
        or not str(value).isdecimal()
        or not 1 <= int(str(value)) <= MAX_WORKERS
    ):
        raise ValueError(f"expected a whole number from 1 to {MAX_WORKERS}")
    return int(str(value))


def as_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = as_text(value).lower()
    if text not in _TRUE + _FALSE:
        raise ValueError("expected true or false")
    return text in _TRUE


def as_one_of(choices: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        text = as_text(value).lower()
        if text not in choices:
            raise ValueError(f"expected one of: {', '.join(choices)}")
        return text

    return read


def as_instance(value: object) -> str:
    text = as_text(value)
    if _INSTANCE.fullmatch(text) is None:
        raise ValueError("expected up to 64 letters, digits, - and _")
    return text
