"""The coordinator's environment, read and typed once.

Owns every environment variable of the coordinator: settings modules take their values from
``ENV`` and nothing else reads ``os.environ``. A bad environment ends the process with one
message that lists every problem, because an operator wants to fix them in one go.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeVar, cast
from urllib.parse import parse_qsl, unquote, urlsplit

T = TypeVar("T")
LogFormat = Literal["json", "console"]
Pooling = Literal["session", "transaction"]

LOG_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
KEYS_IN_MEMORY: Final = ":memory:"
TEST_SETTINGS: Final = "mitosis_site.settings.test"

# Static tools (type checker, migration drift, schema export) load the test settings on machines
# without any service. Nothing listens on port 9, so a test that forgot to start its services
# fails at its first connection instead of using somebody's database.
PLACEHOLDERS: Final[Mapping[str, str]] = {
    "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/nothing",
    "REDIS_URL": "redis://127.0.0.1:9/0",
    "S3_ENDPOINT_URL": "http://127.0.0.1:9",
    "S3_ACCESS_KEY_ID": "placeholder",
    "S3_SECRET_ACCESS_KEY": "placeholder",
    "MITOSIS_KEYS_DIR": KEYS_IN_MEMORY,
}


class EnvError(Exception):
    """Every variable that is missing or wrong, one sentence each."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"The coordinator cannot start, its environment has problems:\n{lines}")


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """Where PostgreSQL is; ``host`` is a directory when the server listens on a Unix socket."""

    url: str = field(repr=False)
    host: str
    port: int
    name: str
    user: str
    password: str = field(repr=False)
    # Further libpq parameters of the URL's query, e.g. sslmode.
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Env:
    """All that differs between installations. Secrets stay out of ``repr``."""

    database: PostgresAddress
    # transaction: behind a pooler that lends a session for one transaction at a time.
    database_pooling: Pooling
    redis_url: str = field(repr=False)
    s3_endpoint_url: str
    s3_access_key_id: str = field(repr=False)
    s3_secret_access_key: str = field(repr=False)
    s3_region: str
    s3_artifacts_bucket: str
    s3_attachments_bucket: str
    # None: keys live in memory only (static tools and tests).
    keys_dir: Path | None
    public_url: str
    allowed_hosts: tuple[str, ...]
    log_level: str
    log_format: LogFormat
    # The header in which a TLS proxy names the client certificate of a direct worker; empty: tokens
    # alone are enough.
    mtls_header: str
    # Opens /metrics to whoever sends it; empty: staff only.
    metrics_token: str = field(repr=False)
    # Hosts that webhooks may reach by plain HTTP and at private addresses.
    webhook_hosts: tuple[str, ...]
    # An OpenTelemetry collector; empty: no traces. Headers may carry its password.
    otlp_endpoint: str
    otlp_headers: Mapping[str, str] = field(repr=False)
    faults: str
    policy: Mapping[str, float]


def read_env(environ: Mapping[str, str]) -> Env:
    """Read all variables; raises EnvError with every problem found, not only the first."""
    problems: list[str] = []

    def required(name: str, purpose: str, parse: Callable[[str], T]) -> T:
        raw = environ.get(name, "")
        if not raw:
            problems.append(f"{name} is missing: set it to {purpose}.")
            return cast("T", None)
        return parsed(name, raw, parse)

    def optional(name: str, default: str, parse: Callable[[str], T]) -> T:
        return parsed(name, environ.get(name) or default, parse)

    def parsed(name: str, raw: str, parse: Callable[[str], T]) -> T:
        try:
            return parse(raw)
        except ValueError as error:
            # The raw value is never quoted: most of these carry a password.
            problems.append(f"{name} is not valid: {error}.")
            return cast("T", None)

    env = Env(
        database=required("DATABASE_URL", "the address of PostgreSQL", _postgres),
        database_pooling=optional("DATABASE_POOLING", "session", _pooling),
        redis_url=required("REDIS_URL", "the address of Redis or Valkey", _redis),
        s3_endpoint_url=required("S3_ENDPOINT_URL", "the address of the S3 service", _http),
        s3_access_key_id=required("S3_ACCESS_KEY_ID", "the access key of the S3 service", str),
        s3_secret_access_key=required("S3_SECRET_ACCESS_KEY", "the S3 secret key", str),
        s3_region=optional("S3_REGION", "us-east-1", str),
        s3_artifacts_bucket=optional("S3_ARTIFACTS_BUCKET", "mitosis-artifacts", _bucket),
        s3_attachments_bucket=optional("S3_ATTACHMENTS_BUCKET", "mitosis-attachments", _bucket),
        keys_dir=required("MITOSIS_KEYS_DIR", "the directory of the signing keys", _keys_dir),
        public_url=optional("MITOSIS_PUBLIC_URL", "http://127.0.0.1:5000", _http),
        allowed_hosts=optional("MITOSIS_ALLOWED_HOSTS", "", _host_list),
        log_level=optional("MITOSIS_LOG_LEVEL", "INFO", _log_level),
        log_format=optional("MITOSIS_LOG_FORMAT", "json", _log_format),
        mtls_header=optional("MITOSIS_MTLS_HEADER", "", _header_name),
        metrics_token=optional("METRICS_TOKEN", "", _token),
        webhook_hosts=optional("MITOSIS_WEBHOOK_HOSTS", "", _host_list),
        otlp_endpoint=optional("OTEL_EXPORTER_OTLP_ENDPOINT", "", _http_or_nothing),
        otlp_headers=optional("OTEL_EXPORTER_OTLP_HEADERS", "", _headers),
        faults=optional("MITOSIS_FAULTS", "", str),
        policy=optional("MITOSIS_POLICY", "", _policy_overrides),
    )
    if problems:
        raise EnvError(problems)
    return env


def _postgres(url: str) -> PostgresAddress:
    """``postgresql://user:pw@host:5432/db`` or ``postgresql://user:pw@/db?host=/socket/dir``."""
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ValueError("it has to begin with postgresql://")
    options = dict(parse_qsl(parts.query))
    host = options.pop("host", "") or unquote(parts.hostname or "")
    port = options.pop("port", "") or str(parts.port or 5432)
    name = unquote(parts.path.removeprefix("/")) or options.pop("dbname", "")
    if not host:
        raise ValueError("it names neither a host nor, as ?host=/dir, a socket directory")
    if not name:
        raise ValueError("it names no database after the last slash")
    if not port.isascii() or not port.isdigit():
        raise ValueError("its port is not a number")
    return PostgresAddress(
        url=url,
        host=host,
        port=int(port),
        name=name,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        options=options,
    )


def _pooling(raw: str) -> Pooling:
    if raw == "session":
        return "session"
    if raw == "transaction":
        return "transaction"
    raise ValueError("it has to be session or transaction")


def _redis(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"redis", "rediss", "unix"}:
        raise ValueError("it has to begin with redis://, rediss:// or unix://")
    if parts.scheme == "unix" and not parts.path.startswith("/"):
        raise ValueError("unix:// needs an absolute path, as in unix:///run/valkey.sock?db=0")
    if parts.scheme != "unix" and not parts.hostname:
        raise ValueError("it names no host")
    return url


def _http(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it has to be an http:// or https:// address")
    if parts.query or parts.fragment or parts.username:
        raise ValueError("it may not have a query, a fragment or a user")
    return url.rstrip("/")


def _http_or_nothing(url: str) -> str:
    return _http(url) if url else ""


def _headers(raw: str) -> Mapping[str, str]:
    """``name=value,name=value`` with percent-encoded values, as OpenTelemetry writes them."""
    headers: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in raw.split(","))):
        name, equals, value = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z0-9-]+", name.strip()):
            raise ValueError("it has to look like name=value,name=value")
        headers[name.strip()] = unquote(value.strip())
    return headers


def _bucket(name: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", name):
        raise ValueError("a bucket name has 3 to 63 lower-case letters, digits, dots and dashes")
    return name


def _header_name(name: str) -> str:
    if name and not re.fullmatch(r"[A-Za-z0-9-]{1,64}", name):
        raise ValueError("a header name has letters, digits and dashes")
    return name


def _keys_dir(raw: str) -> Path | None:
    if raw == KEYS_IN_MEMORY:
        return None
    path = Path(raw)
    if not path.is_absolute():
        raise ValueError("it has to be an absolute path")
    return path


def _host_list(raw: str) -> tuple[str, ...]:
    hosts = tuple(host.strip() for host in raw.split(",") if host.strip())
    if any("/" in host or "://" in host for host in hosts):
        raise ValueError("it is a comma-separated list of host names, without scheme or path")
    return hosts


def _token(raw: str) -> str:
    if raw and not re.fullmatch(r"[!-~]{16,}", raw):
        raise ValueError("it has to have at least 16 printable characters and no spaces")
    return raw


def _log_level(raw: str) -> str:
    if raw.upper() not in LOG_LEVELS:
        raise ValueError(f"it has to be one of {', '.join(LOG_LEVELS)}")
    return raw.upper()


def _log_format(raw: str) -> LogFormat:
    if raw == "json":
        return "json"
    if raw == "console":
        return "console"
    raise ValueError("it has to be json or console")


def _policy_overrides(raw: str) -> Mapping[str, float]:
    """``name=number,name=number``; the names are checked where the policy is built."""
    overrides: dict[str, float] = {}
    for item in filter(None, (part.strip() for part in raw.split(","))):
        name, _, number = item.partition("=")
        try:
            overrides[name.strip()] = float(number)
        except ValueError:
            raise ValueError("it has to look like heartbeat_s=30,lease_ttl_s=120") from None
    return overrides


def _read_process_env() -> Env:
    environ: Mapping[str, str] = os.environ
    if environ.get("DJANGO_SETTINGS_MODULE") == TEST_SETTINGS:
        environ = {**PLACEHOLDERS, **environ}
    try:
        return read_env(environ)
    except EnvError as error:
        # Every entry point (manage.py, uvicorn, celery) imports this module while it boots; a
        # plain exit gives all of them the same short message and no traceback.
        raise SystemExit(str(error)) from None


def default_settings(module: str) -> None:
    """For entry points other than manage.py: the settings module unless the caller chose one."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", module)


ENV: Final = _read_process_env()
