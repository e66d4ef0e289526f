"""A production coordinator that would be unsafe does not start; each reason seen, one by one."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.test import override_settings

from mitosis_site import checks
from mitosis_site.hardening import plain_text_addresses, production_problems
from tests.harness import TestServices

SAFE: dict[str, Any] = {
    "DEBUG": False,
    "ALLOWED_HOSTS": ["mitosis.example", "127.0.0.1"],
    "SECRET_KEY": "k" * 50,
    "MITOSIS_KEYS_IN_MEMORY": False,
    "REDIS_URL": "rediss://user:long-enough-and-random@redis.example/0",
    "S3_SECRET_ACCESS_KEY": "long-enough-and-random",
    "S3_ENDPOINT_URL": "https://s3.example",
    "DATABASES": {
        "default": {
            "HOST": "db.example",
            "PASSWORD": "long-enough-and-random",
            "OPTIONS": {"sslmode": "verify-full"},
        }
    },
}


def with_changes(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**SAFE, **changes})


def test_a_safe_installation_has_no_problem() -> None:
    assert production_problems(with_changes()) == []
    assert plain_text_addresses(with_changes()) == []


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"DEBUG": True}, "DEBUG"),
        ({"ALLOWED_HOSTS": ["*"]}, "MITOSIS_ALLOWED_HOSTS"),
        ({"ALLOWED_HOSTS": [".example"]}, "MITOSIS_ALLOWED_HOSTS"),
        ({"SECRET_KEY": "changeme"}, "SECRET_KEY"),
        ({"SECRET_KEY": "short"}, "SECRET_KEY"),
        ({"SECRET_KEY": "django-insecure-" + "x" * 40}, "SECRET_KEY"),
        ({"MITOSIS_KEYS_IN_MEMORY": True}, "MITOSIS_KEYS_DIR"),
        ({"REDIS_URL": "redis://redis.example:6379/0"}, "REDIS_URL"),
        ({"REDIS_URL": "redis://10.0.0.5"}, "REDIS_URL"),
        ({"REDIS_URL": "redis://:@10.0.0.5"}, "REDIS_URL"),
        ({"REDIS_URL": "redis://:Redis@10.0.0.5"}, "REDIS_URL"),
        ({"REDIS_URL": "redis://0.0.0.0"}, "REDIS_URL"),
        ({"S3_SECRET_ACCESS_KEY": "minioadmin"}, "S3_SECRET_ACCESS_KEY"),
        ({"DATABASES": {"default": {"HOST": "db", "PASSWORD": "postgres"}}}, "DATABASE_URL"),
    ],
)
def test_every_reason_is_told_without_the_secret(changes: dict[str, Any], word: str) -> None:
    [problem] = production_problems(with_changes(**changes))
    assert word in problem
    for secret in ("minioadmin", "changeme", "Redis@"):
        assert secret not in problem


@pytest.mark.parametrize(
    "url",
    [
        "unix:///run/valkey.sock?db=0",
        "redis://127.0.0.1:6379/0",
        "redis://[::1]/0",
        "redis://localhost/0",
        "redis://redis.example/0?password=long-and-random",
    ],
)
def test_a_redis_that_only_this_machine_reaches_or_with_a_password_is_fine(url: str) -> None:
    assert production_problems(with_changes(REDIS_URL=url)) == []


def test_addresses_without_tls_are_named() -> None:
    plain = with_changes(
        REDIS_URL="redis://:pw@redis.example",
        S3_ENDPOINT_URL="http://s3.example",
        DATABASES={"default": {"HOST": "db.example", "PASSWORD": "x", "OPTIONS": {}}},
    )
    assert plain_text_addresses(plain) == ["REDIS_URL", "S3_ENDPOINT_URL", "DATABASE_URL"]


def test_the_deployment_check_says_the_same_under_any_settings() -> None:
    with override_settings(DEBUG=True, ALLOWED_HOSTS=["*"], MITOSIS_FAULTS="x"):
        found = [message.id for message in checks.check_production(None)]
        assert found.count("mitosis.E006") >= 2
        assert [message.id for message in checks.check_faults(None)] == ["mitosis.W008"]
    assert checks.check_policy_is_closed(None) == []
    rest = {**django_settings.REST_FRAMEWORK, "DEFAULT_PERMISSION_CLASSES": []}
    with override_settings(REST_FRAMEWORK=rest):
        assert [one.id for one in checks.check_policy_is_closed(None)] == ["mitosis.E009"]


def start(services: TestServices, keys: Path, *argv: str, **changes: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{keys}{os.pathsep}.",
        **services.environment,
        "MITOSIS_KEYS_DIR": str(keys),
        "DJANGO_SETTINGS_MODULE": "mitosis_site.settings.prod",
        **changes,
    }
    done = subprocess.run(
        [sys.executable, *argv],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return f"{done.returncode} {done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    "entry",
    [
        "import mitosis_site.asgi",
        "import mitosis_site.celery as c; c.app.loader.import_default_modules()",
    ],
)
def test_no_entry_point_starts_with_what_is_unsafe(
    services: TestServices, tmp_path: Path, entry: str
) -> None:
    (tmp_path / "careless.py").write_text(
        "from mitosis_site.settings.prod import *\nDEBUG = True\nSECRET_KEY = 'changeme'\n"
    )
    told = start(
        services, tmp_path, "-c", entry,
        DJANGO_SETTINGS_MODULE="careless",
        REDIS_URL="redis://203.0.113.7:6379/0",
        MITOSIS_ALLOWED_HOSTS="*",
        S3_SECRET_ACCESS_KEY="minioadmin",
    )  # fmt: skip
    assert told.startswith("1 "), told
    assert "refuses to start" in told
    for word in ("DEBUG", "SECRET_KEY", "REDIS_URL", "MITOSIS_ALLOWED_HOSTS", "S3_SECRET"):
        assert word in told
    assert "Traceback" not in told
    assert "minioadmin" not in told
