"""What the user asked for: flags and environment, read once. The stack's only reader of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 5000

# What children inherit: enough to find programs, the user's language and his certificates.
INHERITED = (
    "HOME", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME", "VIRTUAL_ENV",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "MITOSIS_FAULTS", "MITOSIS_LOG_LEVEL",
    "MITOSIS_POLICY", "MITOSIS_ALLOWED_HOSTS", "MITOSIS_WEBHOOK_HOSTS", "METRICS_TOKEN",
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS",
)  # fmt: skip


@dataclass(frozen=True)
class ExternalServices:
    """Servers of the user's own; what is set is not started here."""

    database_url: str | None = None
    redis_url: str | None = None
    s3: Mapping[str, str] | None = None


@dataclass(frozen=True)
class StackSettings:
    """One run of the stack."""

    data_dir: Path
    port: int | None
    agents: int
    asgi_server: str
    external: ExternalServices
    inherited: Mapping[str, str]
    service_user: str | None
    runtime_base: str | None


def default_data_dir() -> Path:
    """`~/.local/share/mitosis` or what the XDG variable says."""
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "mitosis"


def read_settings(
    *, data_dir: Path | None, port: int | None, agents: int, asgi_server: str
) -> StackSettings:
    environ = os.environ
    return StackSettings(
        data_dir=(data_dir or default_data_dir()).expanduser().absolute(),
        port=port,
        agents=agents,
        asgi_server=asgi_server,
        external=read_external(environ),
        inherited={name: environ[name] for name in INHERITED if name in environ},
        service_user=environ.get("MITOSIS_SERVICE_USER"),
        runtime_base=environ.get("XDG_RUNTIME_DIR"),
    )


def read_external(environ: Mapping[str, str]) -> ExternalServices:
    s3 = {name: value for name, value in environ.items() if name.startswith("S3_") and value}
    return ExternalServices(
        database_url=environ.get("DATABASE_URL") or None,
        redis_url=environ.get("REDIS_URL") or None,
        s3=s3 if "S3_ENDPOINT_URL" in s3 else None,
    )
