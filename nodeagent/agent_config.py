"""Settings of `nodeagent run`: defaults < TOML table [agent] < MITO_AGENT_* < flags.

Built by cli, handed down by agent; read by nobody else. Reading of single values is in
config_layers, the environment comes from config.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from nodeagent.config import environment
from nodeagent.config_layers import (
    LOG_FORMATS,
    LOG_LEVELS,
    Fields,
    Secret,
    as_instance,
    as_interval,
    as_names,
    as_one_of,
    as_path,
    as_seconds,
    as_secret,
    as_text,
    as_url,
    base_dir,
    read_layers,
)
from nodeagent.errors import ConfigInvalid
from nodeagent.ipc.transport import TransportChoice
from nodeagent.tls import TlsFiles
from nodeagent.worker.environment import without_reserved

_PREFIX: Final = "MITO_AGENT_"
_SECTION: Final = "agent"
TRANSPORTS: Final = ("auto", "iceoryx2", "unix")
CGROUP_MODES: Final = ("auto", "off")


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an agent can be told. Durations are seconds here, humantime outside."""

    coordinator: str
    # PEM files: whom to trust instead of the system's authorities, and a client certificate.
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # How to register: a user's token in a file, or the user's name and password.
    token_file: Path | None = None
    user: str | None = None
    password: Secret | None = None
    # Several agents on one machine need distinct names, and have distinct directories.
    instance: str = ""
    data_dir: Path
    lock_dir: Path
    # Where tasks and hooks run; by default in data_dir, if their user can get there.
    work_dir: Path | None = None
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    transport: TransportChoice = "auto"
    sandbox_user: str | None = None
    cgroup: str = "auto"
    # After SIGTERM tasks in hand may finish for so long; then they are killed and given back.
    grace_s: float = 30.0
    # Pauses between tries to reach the coordinator grow up to this.
    reconnect_max_s: float = 60.0
    log_level: str = "info"
    log_format: str = "console"
    log_path: Path | None = None
    notify_socket: str | None = None  # systemd's, when it started us
    # A plan of mitosis_protocol.faults, for tests and chaos runs only.
    faults: str = ""
    # What commands inherit: the agent's environment without its own settings and secrets.
    command_env: Mapping[str, str] = {}

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key)


def load_agent_config(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None
) -> AgentConfig:
    """Merge the layers; `flags` holds only what was given. Raises ConfigInvalid."""
    env = environment() if environ is None else dict(environ)
    config_dir = base_dir(env, "XDG_CONFIG_HOME", ".config") / "mitosis"
    chosen = flags.get("config") or env.get(f"{_PREFIX}CONFIG")
    settings = read_layers(
        _FIELDS,
        section=_SECTION,
        prefix=_PREFIX,
        file=(Path(str(chosen)) if chosen else config_dir / "config.toml", bool(chosen)),
        env=env,
        flags={name: value for name, value in flags.items() if name != "config"},
    )
    if "coordinator" not in settings:
        raise ConfigInvalid(f"no coordinator: give --coordinator URL or {_PREFIX}COORDINATOR")
    if "token_file" not in settings and not {"user", "password"} <= settings.keys():
        raise ConfigInvalid(
            "no way to register: give --token-file F, or --user with "
            f"--password-stdin or {_PREFIX}PASSWORD"
        )
    instance = str(settings.get("instance", ""))
    settings.setdefault("data_dir", _data_dir(env, instance))
    settings.setdefault("lock_dir", _lock_dir(env))
    config = AgentConfig(
        command_env=without_reserved(env),
        faults=env.get("MITOSIS_FAULTS", ""),
        notify_socket=env.get("NOTIFY_SOCKET"),
        **settings,  # type: ignore[arg-type]  # each reader below returns its field's type
    )
    config.tls.open(config.coordinator)
    return config


def _data_dir(env: Mapping[str, str], instance: str) -> Path:
    if os.geteuid() == 0:
        base = Path("/var/lib/mitosis")
    else:
        base = base_dir(env, "XDG_DATA_HOME", ".local/share") / "mitosis"
    return base / (f"agent-{instance}" if instance else "agent")


def _lock_dir(env: Mapping[str, str]) -> Path:
    """Where every agent of this user on this machine looks, whatever its data directory."""
    if os.geteuid() == 0:
        return Path("/run/mitosis")
    runtime = env.get("XDG_RUNTIME_DIR")
    if runtime:
        return Path(runtime) / "mitosis"
    return Path(f"/tmp/mitosis-agent-{os.geteuid()}")  # noqa: S108 - its owner is checked


_FIELDS: Fields = {
    "coordinator": ("coordinator", as_url),
    "tls_ca": ("tls_ca", as_path),
    "tls_cert": ("tls_cert", as_path),
    "tls_key": ("tls_key", as_path),
    "token_file": ("token_file", as_path),
    "user": ("user", as_text),
    "password": ("password", as_secret),
    "instance": ("instance", as_instance),
    "name": ("instance", as_instance),
    "data_dir": ("data_dir", as_path),
    "lock_dir": ("lock_dir", as_path),
    "work_dir": ("work_dir", as_path),
    "tags": ("tags", as_names),
    "labels": ("labels", as_names),
    "groups": ("groups", as_names),
    "transport": ("transport", as_one_of(TRANSPORTS)),
    "sandbox_user": ("sandbox_user", as_text),
    "cgroup": ("cgroup", as_one_of(CGROUP_MODES)),
    "grace": ("grace_s", as_seconds),
    "reconnect_max": ("reconnect_max_s", as_interval),
    "log_level": ("log_level", as_one_of(LOG_LEVELS)),
    "log_format": ("log_format", as_one_of(LOG_FORMATS)),
    "log_path": ("log_path", as_path),
}
