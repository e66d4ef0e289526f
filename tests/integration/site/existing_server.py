"""The database of an existing Mitosis server (0.6.8): its tables, and a small world in them.

The shape is that of the other server as its documented entities have it; the rows are written as
it would write them, so that the import reads what it will meet.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from argon2 import PasswordHasher
from django.conf import settings
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from accounts.password import md5_of

READY, PENDING, RUNNING, FINISHED, CANCELLED = 1, 0, 2, 3, 4
MORNING = datetime(2025, 11, 1, 6, tzinfo=UTC)
PASSWORD = "the old password"

_STAMPS = "created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL"
_TASK = f"""
    creator_id bigint NOT NULL REFERENCES users, group_id bigint NOT NULL REFERENCES groups,
    task_id bigint NOT NULL, uuid uuid NOT NULL UNIQUE, tags text[] NOT NULL,
    labels text[] NOT NULL, {_STAMPS}, state integer NOT NULL, assigned_worker bigint,
    timeout bigint NOT NULL,
    priority integer NOT NULL, spec json NOT NULL, result json, upstream_task_uuid uuid,
    downstream_task_uuid uuid
"""
SCHEMA = f"""
    CREATE TABLE users (id bigserial PRIMARY KEY, username text UNIQUE NOT NULL,
        encrypted_password text NOT NULL, auth_signature bigint, {_STAMPS}, admin boolean NOT NULL,
        state integer NOT NULL, group_quota bigint NOT NULL, group_count integer NOT NULL);
    CREATE TABLE groups (id bigserial PRIMARY KEY, group_name text UNIQUE NOT NULL,
        creator_id bigint NOT NULL REFERENCES users, {_STAMPS}, state integer NOT NULL,
        task_count bigint NOT NULL, storage_quota bigint NOT NULL, storage_used bigint NOT NULL,
        worker_count integer NOT NULL);
    CREATE TABLE user_group (id bigserial PRIMARY KEY, user_id bigint NOT NULL REFERENCES users,
        group_id bigint NOT NULL REFERENCES groups, role integer NOT NULL);
    CREATE TABLE workers (id bigserial PRIMARY KEY, worker_id uuid UNIQUE NOT NULL,
        creator_id bigint NOT NULL REFERENCES users, tags text[] NOT NULL, labels text[] NOT NULL,
        {_STAMPS}, state integer NOT NULL, last_heartbeat timestamptz NOT NULL,
        assigned_task_id bigint);
    CREATE TABLE group_worker (id bigserial PRIMARY KEY, group_id bigint NOT NULL REFERENCES groups,
        worker_id bigint NOT NULL REFERENCES workers, role integer NOT NULL);
    CREATE TABLE active_tasks (id bigserial PRIMARY KEY, {_TASK});
    CREATE TABLE archived_tasks (id bigint PRIMARY KEY, {_TASK}, reporter_uuid uuid);
    CREATE TABLE artifacts (id bigserial PRIMARY KEY, task_id uuid NOT NULL,
        content_type integer NOT NULL, size bigint NOT NULL, {_STAMPS});
    CREATE TABLE attachments (id bigserial PRIMARY KEY, group_id bigint NOT NULL REFERENCES groups,
        key text NOT NULL, content_type integer NOT NULL, size bigint NOT NULL, {_STAMPS});
"""


class ExistingServer:
    """Rows in the other server's tables, added by hand."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute(SCHEMA)
        self._ids = 0

    def close(self) -> None:
        self._db.close()

    def execute(self, statement: str) -> None:
        self._db.execute(statement.encode())

    def user(self, name: str, *, admin: bool = False, state: int = 0) -> int:
        """A user with the group of the same name, as the server makes them."""
        phc = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1).hash(md5_of(PASSWORD))
        user_id = self._insert(
            "users", username=name, encrypted_password=phc, admin=admin, state=state,
            group_quota=8, group_count=1, **_stamps(),
        )  # fmt: skip
        self.member(user_id, self.group(name, user_id), 2)
        return user_id

    def group(self, name: str, creator_id: int, *, task_count: int = 0) -> int:
        return self._insert(
            "groups", group_name=name, creator_id=creator_id, state=0, task_count=task_count,
            storage_quota=5000, storage_used=0, worker_count=0, **_stamps(),
        )  # fmt: skip

    def member(self, user_id: int, group_id: int, role: int) -> None:
        self._insert("user_group", user_id=user_id, group_id=group_id, role=role)

    def worker(self, creator_id: int, group_id: int, worker_id: uuid.UUID) -> None:
        row = self._insert(
            "workers", worker_id=worker_id, creator_id=creator_id, tags=["gpu"], labels=["rack:1"],
            state=0, last_heartbeat=MORNING, **_stamps(),
        )  # fmt: skip
        self._insert("group_worker", group_id=group_id, worker_id=row, role=1)

    def task(
        self, creator_id: int, group_id: int, number: int, state: int, **more: Any
    ) -> uuid.UUID:
        """In the queue, or in the archive when it has a reporter."""
        task_uuid = uuid.uuid4()
        self._ids += 1
        row: dict[str, Any] = {
            "id": self._ids, "creator_id": creator_id, "group_id": group_id, "task_id": number,
            "uuid": task_uuid, "tags": [], "labels": ["old"], "state": state, "timeout": 600,
            "priority": 0, "spec": json.dumps({"args": ["true"]}), "result": None,
            **_stamps(), **more,
        }  # fmt: skip
        self._insert("archived_tasks" if "reporter_uuid" in more else "active_tasks", **row)
        return task_uuid

    def artifact(self, task_uuid: uuid.UUID, size: int) -> None:
        self._insert("artifacts", task_id=task_uuid, content_type=0, size=size, **_stamps())

    def attachment(self, group_id: int, key: str, size: int) -> None:
        self._insert(
            "attachments", group_id=group_id, key=key, content_type=0, size=size, **_stamps()
        )

    def _insert(self, table: str, **values: Any) -> int:
        names = sql.SQL(", ").join(map(sql.Identifier, values))
        places = sql.SQL(", ").join(map(sql.Placeholder, values))
        statement = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING id")
        row = self._db.execute(
            statement.format(sql.Identifier(table), names, places), values
        ).fetchone()
        assert row is not None
        return int(row[0])


def _stamps() -> dict[str, datetime]:
    return {"created_at": MORNING, "updated_at": MORNING + timedelta(hours=1)}


@contextmanager
def existing_server() -> Iterator[ExistingServer]:
    """On a database of its own beside the one of the tests."""
    name = f"existing_{uuid.uuid4().hex[:8]}"
    given = conninfo_to_dict(settings.DATABASE_URL)
    login = f"{given['user']}:{given.get('password', '')}"
    url = f"postgresql://{login}@/{name}?host={given['host']}&port={given.get('port', 5432)}"
    with psycopg.connect(settings.DATABASE_URL, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        server = ExistingServer(url)
        try:
            yield server
        finally:
            server.close()
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
