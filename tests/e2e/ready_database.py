"""Databases for clusters that need not be set up one by one: copies of one that was.

The first cluster of a test process has a template bootstrapped; copying that takes a tenth of a
second instead of the seconds of all migrations and of a process of its own. The bootstrap itself
is tested with the embedded stack.
"""

import json
import os
import sys
import tempfile
import urllib.parse
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg

from mitosis_stack.process import ChildSpec, spawn, wait_until

_BOOTSTRAP_S = 120.0


@dataclass(frozen=True)
class Admin:
    """Who may do everything in a fresh cluster."""

    username: str
    password: str


@dataclass(frozen=True)
class _Template:
    database: str
    admin: Admin


_templates: dict[str, _Template] = {}  # by the server they are on


def create_ready(name: str, *, environment: Mapping[str, str], log: Path) -> Admin:
    """Make a database of this name that has the schema of today, an admin and nothing else."""
    server = os.environ["DATABASE_URL"]
    if server not in _templates:
        _templates[server] = _make_template(environment, log)
    template = _templates[server]
    run_sql(f'CREATE DATABASE "{name}" TEMPLATE "{template.database}"')
    return template.admin


def run_sql(statement: str) -> None:
    """On the stores of this run, outside of any transaction."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(statement)


def url_of(database: str) -> str:
    parts = urllib.parse.urlsplit(os.environ["DATABASE_URL"])
    return parts._replace(path=f"/{database}").geturl()


def _make_template(environment: Mapping[str, str], log: Path) -> _Template:
    name = f"template_{uuid.uuid4().hex[:12]}"
    run_sql(f'CREATE DATABASE "{name}"')
    with tempfile.TemporaryDirectory() as directory:
        admin_file = Path(directory) / "admin.json"
        command = ("-m", "django", "bootstrap", "--admin-file", str(admin_file))
        child = spawn(
            ChildSpec(
                name="bootstrap",
                argv=(sys.executable, *command),
                log=log,
                env={**environment, "DATABASE_URL": url_of(name)},
            )
        )
        wait_until(lambda: child.poll() == 0, child=child, timeout_s=_BOOTSTRAP_S)
        stored = json.loads(admin_file.read_text())
    # Nobody may be connected to it while it is copied, not even somebody who only looks around.
    run_sql(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
    return _Template(name, Admin(stored["username"], stored["password"]))
