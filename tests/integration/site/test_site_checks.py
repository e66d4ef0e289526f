"""System checks and the deployment gate, each seen both passing and failing."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from django.conf import settings as django_settings

from mitosis_site import checks
from mitosis_site.sql_syntax import sql_problem
from tests.harness import TestServices

# What is silenced, so that nobody silences more without saying why: see settings.security.
SILENCED = ["security.W001", "security.W002", "security.W003"]


def check_deploy(services: TestServices, keys: Path, **changes: str) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        **services.environment,
        "MITOSIS_KEYS_DIR": str(keys),
        "MITOSIS_PUBLIC_URL": "https://mitosis.example",
        "DJANGO_SETTINGS_MODULE": "mitosis_site.settings.prod",
        **changes,
    }
    command = ["manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )
    return f"{done.returncode} {done.stdout}{done.stderr}"


def test_production_passes_the_deployment_check(services: TestServices, tmp_path: Path):
    told = check_deploy(services, tmp_path)
    assert told.startswith("0 System check identified no issues (3 silenced)"), told
    assert django_settings.SILENCED_SYSTEM_CHECKS == SILENCED


def test_a_public_address_without_tls_is_warned_about(services: TestServices, tmp_path: Path):
    told = check_deploy(services, tmp_path, MITOSIS_PUBLIC_URL="http://mitosis.example")
    assert told.startswith("1 ")
    assert "security.W010" in told  # session cookies would travel in the clear


def test_numbers_that_contradict_each_other_stop_the_process(
    services: TestServices, tmp_path: Path
):
    told = check_deploy(services, tmp_path, MITOSIS_POLICY="heartbeat_s=60")
    assert told.startswith("1 The coordinator cannot start, its policy is wrong: lease_ttl_s")
    assert "Traceback" not in told


def test_keys_that_cannot_be_read_stop_the_process(services: TestServices, tmp_path: Path):
    (tmp_path / "private.pem").write_text("nonsense")
    told = check_deploy(services, tmp_path)
    assert told.startswith("1 The coordinator cannot start, its keys are unusable: ")
    assert "Traceback" not in told


def test_our_middleware_stands_in_for_djangos(settings):
    assert checks.check_middleware(None) == []
    settings.MIDDLEWARE = [path for path in settings.MIDDLEWARE if not path.endswith(".Csrf")]
    [message] = checks.check_middleware(None)
    assert "CsrfViewMiddleware" in message.msg


def test_a_policy_that_lets_scripts_into_pages_is_an_error(settings):
    assert checks.check_content_security_policy(None) == []
    loose = {"script-src": ("'self'", "'unsafe-inline'")}
    settings.CONTENT_SECURITY_POLICY = loose
    [message] = checks.check_content_security_policy(None)
    assert message.id == "mitosis.E005"


def test_websocket_client_must_not_be_installed(tmp_path: Path, monkeypatch):
    assert checks.check_websocket_name(None) == []
    installed = tmp_path / "websocket_client-1.8.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: websocket-client\nVersion: 1.8.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    [message] = checks.check_websocket_name(None)
    assert message.id == "mitosis.E003"


def test_all_sql_files_of_the_apps_are_in_order():
    assert list(checks.sql_files())
    assert checks.check_sql_files(None) == []


@pytest.mark.parametrize(
    "text",
    [
        "-- why\nSELECT 1",
        "-- why\nSELECT '(', \"[\", $$ ' ( $$, $x$ $$ $x$ -- it's\n FROM t /* ( */",
        "-- why\nSELECT %s, %(name)s, 5 %% 2, 'it''s 100% sure'",
        "-- why\nSELECT a[1:2] FROM (SELECT 1) t WHERE b @> ARRAY['x']",
    ],
)
def test_good_sql_is_left_alone(text: str):
    assert sql_problem(text.encode()) is None


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"SELECT 1", "comment"),
        (b"-- why\n", "no statement"),
        (b"-- why\nSELECT \xff", "UTF-8"),
        (b"-- why\nSELECT 'open", "not closed"),
        (b'-- why\nSELECT "open', "not closed"),
        (b"-- why\nDO $$ BEGIN", "not closed"),
        (b"-- why\n/* SELECT 1", "not closed"),
        (b"-- why\nSELECT (1", "( is not closed"),
        (b"-- why\nSELECT 1)", ") closes nothing"),
        (b"-- why\nSELECT (a[1)]", ") closes nothing"),
        (b"-- why\nSELECT 5 % 2", "%"),
        (b"-- why\nSELECT %(name", "( is not closed"),
    ],
)
def test_broken_sql_is_described(content: bytes, word: str):
    assert word in (sql_problem(content) or "")


def test_django_and_the_pool_use_the_same_limits(db: None):
    options = django_settings.DATABASES["default"]["OPTIONS"]["options"]
    assert options.startswith(django_settings.PG_SESSION_OPTIONS)
    with psycopg.connect(django_settings.DATABASE_URL, options=options) as connection:
        found = connection.execute("SHOW lock_timeout").fetchone()
    assert found == ("2s",)
