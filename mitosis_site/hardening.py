"""What no production coordinator may run with: known secrets, an open Redis, debug pages, any host.

`production_problems` is asked twice: by the app's start under production settings, which refuses
to go on, and by `manage.py check --deploy` under any settings (mitosis_site.checks).
"""

import ipaddress
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

MIN_SECRET_CHARS: Final = 32
# What examples, images and tutorials ship with. Compared without case.
KNOWN_SECRETS: Final = frozenset({
    "admin", "change-me", "changeit", "changeme", "default", "example", "minioadmin", "mitosis",
    "none", "passw0rd", "password", "placeholder", "postgres", "redis", "s3cr3t", "secret", "test",
    "valkey",
})  # fmt: skip


def production_problems(settings: Any) -> list[str]:
    """One sentence each, never with the value itself; empty when the installation may serve."""
    return [
        *_debug_problems(settings),
        *_host_problems(settings.ALLOWED_HOSTS),
        *_key_problems(settings),
        *_redis_problems(settings.REDIS_URL),
        *_store_problems(settings),
    ]


def _debug_problems(settings: Any) -> Iterator[str]:
    if settings.DEBUG:
        yield "DEBUG is on: error pages would show settings and source to anybody."


def _host_problems(hosts: list[str]) -> Iterator[str]:
    wild = [host for host in hosts if host.startswith(("*", "."))]
    if wild:
        shown = ", ".join(wild)
        yield f"MITOSIS_ALLOWED_HOSTS takes any host ({shown}): name the hosts one by one."


def _key_problems(settings: Any) -> Iterator[str]:
    secret = settings.SECRET_KEY
    if _is_known(secret) or len(secret) < MIN_SECRET_CHARS or secret.startswith("django-insecure"):
        yield f"SECRET_KEY is a default or has fewer than {MIN_SECRET_CHARS} characters."
    if settings.MITOSIS_KEYS_IN_MEMORY:
        yield "MITOSIS_KEYS_DIR keeps keys in memory: every restart would end all sessions."


def _redis_problems(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    password = parts.password or "".join(parse_qs(parts.query).get("password", []))
    if parts.scheme == "unix" or is_loopback(parts.hostname or ""):
        return  # who may connect there is decided by the machine
    if not password:
        yield "REDIS_URL has no password and its host is not this machine: anybody may use it."
    elif _is_known(password):
        yield "The password in REDIS_URL is a well-known default."


def _store_problems(settings: Any) -> Iterator[str]:
    if _is_known(settings.S3_SECRET_ACCESS_KEY):
        yield "S3_SECRET_ACCESS_KEY is a well-known default."
    database = settings.DATABASES["default"]
    host = str(database["HOST"])
    if host.startswith("/") or is_loopback(host):
        return
    if _is_known(str(database["PASSWORD"])):
        yield "The password in DATABASE_URL is a well-known default."


def _is_known(secret: str) -> bool:
    return secret.casefold() in KNOWN_SECRETS


def is_loopback(host: str) -> bool:
    """Whether a host of an address can only be this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def plain_text_addresses(settings: Any) -> list[str]:
    """Variables whose traffic would leave this machine unencrypted."""
    parts: dict[str, SplitResult] = {
        "REDIS_URL": urlsplit(settings.REDIS_URL),
        "S3_ENDPOINT_URL": urlsplit(settings.S3_ENDPOINT_URL),
    }
    found = [
        name
        for name, address in parts.items()
        if address.scheme in {"redis", "http"} and not is_loopback(address.hostname or "")
    ]
    database = settings.DATABASES["default"]
    host = str(database["HOST"])
    mode = database.get("OPTIONS", {}).get("sslmode", "prefer")
    if not host.startswith("/") and not is_loopback(host) and mode in _UNSAFE_MODES:
        found.append("DATABASE_URL")
    return found


_UNSAFE_MODES: Final = frozenset({"disable", "allow", "prefer"})
