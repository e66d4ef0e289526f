"""Everything an empty installation needs before it can serve: schema, first admin, buckets.

Every step may be repeated and a kill at any point is repaired by the next run. One run at a time:
an advisory lock, held by a transaction of its own connection, makes the others wait. The signing
keys are older than this: settings make them before Django starts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg
from django.core.management import call_command
from django.db import connection

from accounts.actors import SYSTEM
from accounts.password import md5_of
from accounts.selectors import find_user
from accounts.services.users import create_user
from core.faults import fault
from core.locks import lock_number
from mitosis_site.admin_file import (
    AdminFileError,
    AdminLogin,
    new_login,
    read_login,
    refresh_url,
    write_login,
)
from mitosis_site.object_store import ObjectStore, ensure_buckets

LOCK_KEY: Final = "site.bootstrap"

Say = Callable[[str], None]


class NeedsOwnSession(Exception):
    """The database is reached through a pooler in transaction mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to set up and where."""

    database_url: str
    admin_file: Path
    username: str
    url: str
    store: ObjectStore
    is_pooled: bool = False
    # Another run may be migrating a large database.
    lock_wait_s: int = 300


def bootstrap(plan: Plan, say: Say) -> None:
    """Do what is missing. Raises the error of the step that failed; run it again afterwards."""
    if plan.is_pooled:
        # The limits it lifts for its migrations would stay lifted in a session of others.
        raise NeedsOwnSession(
            "bootstrap needs a session of its own: name PostgreSQL itself in DATABASE_URL and "
            "leave DATABASE_POOLING out"
        )
    with _only_one(plan.database_url, plan.lock_wait_s):
        _migrate()
        say("The database schema is current.")
        fault("bootstrap.migrated")
        login = _ensure_admin(plan, say)
        refresh_url(plan.admin_file, login, plan.url)
        fault("bootstrap.admin_ready")
        for bucket in ensure_buckets(plan.store):
            say(f"Made the bucket {bucket}.")


@contextmanager
def _only_one(database_url: str, wait_s: int) -> Iterator[None]:
    with psycopg.connect(database_url, connect_timeout=5, application_name="mitosis") as lock:
        lock.execute("SELECT set_config('lock_timeout', %s, true)", [f"{wait_s}s"])
        lock.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number(LOCK_KEY)])
        # From here on this transaction does nothing but hold the lock, for as long as the work
        # takes. A statement without parameters comes last: one with parameters would leave its
        # snapshot open, and an index that is built concurrently would wait for it for ever.
        lock.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


def _migrate() -> None:
    with connection.cursor() as cursor:
        # Building an index may take longer than any statement of a serving process may.
        cursor.execute("SET statement_timeout = 0")
    call_command("migrate", interactive=False, verbosity=0)


def _ensure_admin(plan: Plan, say: Say) -> AdminLogin:
    login = read_login(plan.admin_file)
    username = plan.username if login is None else login.username
    user = find_user(username)
    if login is None:
        if user is not None:
            raise AdminFileError(
                f"user {username} exists and {plan.admin_file} does not: write its name and "
                "password there as JSON (username, password), or choose a new --username"
            )
        login = new_login(plan.url, username)
        write_login(plan.admin_file, login)
        fault("bootstrap.admin_file_written")
    if user is None:
        password = md5_of(login.password)
        create_user(actor=SYSTEM, username=username, md5_password=password, is_admin=True)
        say(f"Made the admin {username}; its password is in {plan.admin_file}.")
    elif not user.is_staff:
        # Somebody took the right away on purpose; giving it back is not ours to do.
        say(f"The user {username} exists but is no admin any more.")
    return login
