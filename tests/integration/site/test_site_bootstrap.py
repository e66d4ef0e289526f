"""`python -m django bootstrap` as a supervisor runs it: repeatable, restartable, one error line."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from accounts.password import check_plain_password
from core.locks import lock_number
from mitosis_site.bootstrap import LOCK_KEY
from mitosis_site.health import object_store
from mitosis_site.object_store import ensure_buckets
from tests.harness import TestServices

URL = "http://127.0.0.1:5999"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def database_url(services: TestServices) -> Iterator[str]:
    """An empty database of its own, as a new installation has it."""
    name = f"bootstrap_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    given = conninfo_to_dict(settings.DATABASE_URL)
    login = f"{given['user']}:{given.get('password', '')}"
    where = f"host={given['host']}&port={given.get('port', 5432)}"
    yield f"postgresql://{login}@/{name}?{where}"
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def admin_file(tmp_path: Path) -> Path:
    return tmp_path / "admin.json"


@pytest.fixture
def run(database_url: str, admin_file: Path, tmp_path: Path, services: TestServices) -> Run:
    def run_bootstrap(
        url: str = URL, patience_s: float = 90, **changes: str
    ) -> "subprocess.CompletedProcess[str]":
        environment = {
            "PATH": os.environ["PATH"],
            **services.environment,
            "DATABASE_URL": database_url,
            "MITOSIS_KEYS_DIR": str(tmp_path / "keys"),
            "DJANGO_SETTINGS_MODULE": "mitosis_site.settings.prod",
            **changes,
        }
        command = ["bootstrap", "--admin-file", str(admin_file), "--url", url]
        return subprocess.run(
            [sys.executable, "-m", "django", *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=patience_s,
            check=False,
        )

    return run_bootstrap


def users(database_url: str) -> list[tuple[str, bool, str]]:
    with psycopg.connect(database_url) as connection:
        return connection.execute("SELECT username, is_staff, password FROM users").fetchall()


def assert_bootstrapped(admin_file: Path, database_url: str, url: str = URL) -> None:
    """The admin of the file can log in, and there is nobody else."""
    login = json.loads(admin_file.read_text())
    assert login["url"] == url
    assert admin_file.stat().st_mode & 0o777 == 0o600
    [(username, is_staff, password)] = users(database_url)
    assert (username, is_staff) == (login["username"], True)
    assert check_plain_password(login["password"], password)


def one_line_error(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    return line


def test_an_empty_installation_becomes_usable_and_a_second_run_changes_nothing(
    run: Run, admin_file: Path, database_url: str, tmp_path: Path
):
    first = run()
    assert first.returncode == 0, first.stderr
    assert_bootstrapped(admin_file, database_url)
    assert (tmp_path / "keys" / "private.pem").exists()
    assert json.loads(admin_file.read_text())["password"] not in first.stdout + first.stderr

    before = admin_file.stat().st_mtime_ns, admin_file.read_bytes(), users(database_url)
    second = run()
    assert second.returncode == 0, second.stderr
    assert (admin_file.stat().st_mtime_ns, admin_file.read_bytes(), users(database_url)) == before

    moved = run(url="http://127.0.0.1:6001/")
    assert moved.returncode == 0, moved.stderr
    assert_bootstrapped(admin_file, database_url, url="http://127.0.0.1:6001")
    assert users(database_url) == before[2]


@pytest.mark.parametrize(
    "point", ["bootstrap.migrated", "bootstrap.admin_file_written", "bootstrap.admin_ready"]
)
def test_a_run_that_was_killed_is_completed_by_the_next(
    run: Run, admin_file: Path, database_url: str, point: str
):
    killed = run(MITOSIS_FAULTS=f"{point}=kill9")
    assert killed.returncode == -9
    known = json.loads(admin_file.read_text())["password"] if admin_file.exists() else None
    after = run()
    assert after.returncode == 0, after.stderr
    assert_bootstrapped(admin_file, database_url)
    # Somebody may have read the password already.
    assert known in (None, json.loads(admin_file.read_text())["password"])


def test_a_changed_password_is_never_reset_and_a_lost_file_is_said(
    run: Run, admin_file: Path, database_url: str
):
    assert run().returncode == 0
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE users SET password = 'chosen by its owner'")
    assert run().returncode == 0
    assert [row[2] for row in users(database_url)] == ["chosen by its owner"]

    admin_file.unlink()
    assert "user admin exists" in one_line_error(run())
    assert not admin_file.exists()

    admin_file.write_text("{ half")
    assert "is damaged" in one_line_error(run())
    assert admin_file.read_text() == "{ half"


def test_two_runs_at_once_take_turns(run: Run, database_url: str, admin_file: Path):
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(LOCK_KEY)])
        with pytest.raises(subprocess.TimeoutExpired):
            run(patience_s=4)
        other.rollback()
    assert run().returncode == 0
    assert_bootstrapped(admin_file, database_url)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"DATABASE_URL": "postgresql://u:canary@127.0.0.1:9/db"}, "PostgreSQL: "),
        ({"DATABASE_URL": "postgresql://u:canary@/db?host=/nonexistent"}, "PostgreSQL: "),
        ({"S3_ENDPOINT_URL": "http://127.0.0.1:9"}, "no S3 service at http://127.0.0.1:9"),
        ({"S3_SECRET_ACCESS_KEY": "canary"}, "the S3 service refused"),
    ],
)
def test_a_store_that_is_away_is_one_line_on_stderr(run: Run, changes: dict[str, str], word: str):
    line = one_line_error(run(**changes))
    assert word in line
    assert "canary" not in line


def test_an_admin_file_that_cannot_be_written_is_one_line_on_stderr(run: Run, admin_file: Path):
    admin_file.mkdir()
    assert str(admin_file) in one_line_error(run())


def test_buckets_are_made_once(services: TestServices):
    assert ensure_buckets(object_store()) == []
