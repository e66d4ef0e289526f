"""Settings of the node agent's programs: defaults < TOML file < environment < flags.

The only module below nodeagent that reads the environment. cli builds one WorkerConfig, or one
AgentConfig (agent_config), and hands it down; nothing else is global. Names and flags of workers
are those of existing workers.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from nodeagent.config_layers import (
    LOG_FORMATS,
    LOG_LEVELS,
    Fields,
    Secret,
    as_address,
    as_count,
    as_interval,
    as_names,
    as_one_of,
    as_path,
    as_seconds,
    as_secret,
    as_switch,
    as_text,
    as_url,
    base_dir,
    read_layers,
)
from nodeagent.tls import TlsFiles
from nodeagent.worker.environment import without_reserved

_PREFIX = "MITO_"
_SECTION = "worker"


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a worker can be told. Durations are seconds here, humantime outside."""

    coordinator: str = "http://127.0.0.1:5000"
    # Existing workers ask every 180 s, so a lone task waits 90 s on average. An empty fetch costs
    # the coordinator one indexed query, so 5 s is affordable for thousands of workers; the pause
    # is jittered, and counted from the start of the request, so that a coordinator may hold an
    # empty fetch open without slowing the next one down.
    polling_interval_s: float = 5.0
    # 300 s in existing workers. Heartbeat answers carry cancellations, so ours beat as often as
    # node managers do; the coordinator forgets a worker after 600 s without one.
    heartbeat_interval_s: float = 30.0
    # PEM files: whom to trust instead of the system's authorities, and a client certificate.
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    credential_path: Path
    user: str | None = None
    password: Secret | None = None
    # Logging in anew ends the user's other sessions unless they are retained, and a fleet that
    # starts together would log itself out.
    retain: bool = True
    groups: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    lifetime_s: float | None = None
    # 0 is what existing workers do at SIGTERM: the command is killed and the task given back.
    grace_s: float = 0.0
    cache_dir: Path
    log_level: str = "info"
    log_format: str = "console"
    file_log: bool = False
    shared_log: bool = False
    log_path: Path | None = None
    # --- direct workers only ---
    # Tasks at the same time.
    concurrency: int = 1
    # Modules that define handlers.
    handlers: tuple[str, ...] = ()
    # Whether plain command tasks are taken beside the handlers' ones.
    commands: bool = True
    # Remote code: only where the operator of this host says so.
    allow_packages: bool = False
    # Where `GET /metrics` is answered; None: nowhere.
    metrics_listen: tuple[str, int] | None = None
    # A plan of mitosis_protocol.faults, for tests and chaos runs only.
    faults: str = ""
    # What commands inherit: the worker's environment without its own settings and secrets.
    command_env: Mapping[str, str] = {}

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(ca=self.tls_ca, cert=self.tls_cert, key=self.tls_key)


def load_worker_config(
    flags: Mapping[str, object], environ: Mapping[str, str] | None = None
) -> WorkerConfig:
    """Merge the layers; `flags` holds only what was given. Raises ConfigInvalid."""
    env = environment() if environ is None else dict(environ)
    config_dir = base_dir(env, "XDG_CONFIG_HOME", ".config") / "mitosis"
    settings: dict[str, object] = {
        "credential_path": config_dir / "credentials",
        "cache_dir": base_dir(env, "XDG_CACHE_HOME", ".cache"),
    }
    chosen = flags.get("config") or env.get(f"{_PREFIX}CONFIG")
    settings |= read_layers(
        _FIELDS,
        section=_SECTION,
        prefix=_PREFIX,
        file=(Path(str(chosen)) if chosen else config_dir / "config.toml", bool(chosen)),
        env=env,
        flags={name: value for name, value in flags.items() if name != "config"},
    )
    config = WorkerConfig(
        command_env=without_reserved(env),
        faults=env.get("MITOSIS_FAULTS", ""),
        **settings,  # type: ignore[arg-type]  # each reader below returns its field's type
    )
    config.tls.open(config.coordinator)
    return config


def environment() -> dict[str, str]:
    """The process's own, for those who may not read it themselves."""
    return dict(os.environ)


_FIELDS: Fields = {
    "coordinator": ("coordinator", as_url),
    "coordinator_addr": ("coordinator", as_url),
    "polling_interval": ("polling_interval_s", as_interval),
    "heartbeat_interval": ("heartbeat_interval_s", as_interval),
    "tls_ca": ("tls_ca", as_path),
    "tls_cert": ("tls_cert", as_path),
    "tls_key": ("tls_key", as_path),
    "credential_path": ("credential_path", as_path),
    "user": ("user", as_text),
    "password": ("password", as_secret),
    "retain": ("retain", as_switch),
    "groups": ("groups", as_names),
    "tags": ("tags", as_names),
    "labels": ("labels", as_names),
    "lifetime": ("lifetime_s", as_interval),
    "grace": ("grace_s", as_seconds),
    "concurrency": ("concurrency", as_count),
    "handlers": ("handlers", as_names),
    "commands": ("commands", as_switch),
    "allow_packages": ("allow_packages", as_switch),
    "metrics_listen": ("metrics_listen", as_address),
    "cache_dir": ("cache_dir", as_path),
    "log_level": ("log_level", as_one_of(LOG_LEVELS)),
    "log_format": ("log_format", as_one_of(LOG_FORMATS)),
    "file_log": ("file_log", as_switch),
    "shared_log": ("shared_log", as_switch),
    "log_path": ("log_path", as_path),
}
