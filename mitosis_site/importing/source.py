"""Reads the PostgreSQL database of an existing Mitosis server (0.6.8), in one read-only snapshot.

Nothing is written there. What is not such a database is refused with everything that is missing
in one message, before anything is read.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, LiteralString

import psycopg
from psycopg.rows import dict_row

from core.errors import InvalidInput

SourceRow = Mapping[str, Any]

BATCH_ROWS: Final = 1000  # a thousand tasks of 2 KiB are 2 MB in one statement
CONNECT_TIMEOUT_S: Final = 10

_TASK: Final = (
    "id creator_id group_id task_id uuid tags labels created_at updated_at state timeout priority "
    "spec result upstream_task_uuid downstream_task_uuid"
)
COLUMNS: Final[Mapping[str, str]] = {
    "users": "id username encrypted_password admin state group_quota created_at updated_at",
    "groups": "id group_name creator_id state task_count storage_quota created_at updated_at",
    "user_group": "id user_id group_id role",
    "workers": "id worker_id creator_id tags labels created_at updated_at last_heartbeat",
    "group_worker": "id group_id worker_id role",
    "active_tasks": _TASK,
    "archived_tasks": f"{_TASK} reporter_uuid",
    "artifacts": "id task_id content_type size created_at updated_at",
    "attachments": "id group_id key content_type size created_at updated_at",
}

# JSON travels as text: the source keeps `json`, which may hold what `jsonb` cannot.
_TASK_SELECT: Final = """
    SELECT t.id, u.username AS creator, g.group_name, g.task_count AS source_count,
        t.task_id AS number, t.uuid, t.tags, t.labels,
        t.created_at, t.updated_at, t.state, t.timeout, t.priority, t.spec::text AS spec,
        t.result::text AS result, t.upstream_task_uuid, t.downstream_task_uuid
"""
_JOINS: Final = "JOIN users u ON u.id = t.creator_id JOIN groups g ON g.id = t.group_id"
QUERIES: Final[Mapping[str, LiteralString]] = {
    "users": """
        SELECT username, encrypted_password, admin, state, group_quota, created_at, updated_at
        FROM users ORDER BY id
    """,
    "groups": """
        SELECT g.group_name AS name, u.username AS creator, g.state, g.task_count, g.storage_quota,
            g.created_at, g.updated_at
        FROM groups g JOIN users u ON u.id = g.creator_id ORDER BY g.id
    """,
    "memberships": """
        SELECT u.username, g.group_name, m.role
        FROM user_group m JOIN users u ON u.id = m.user_id JOIN groups g ON g.id = m.group_id
        ORDER BY m.id
    """,
    "workers": """
        SELECT w.worker_id AS uuid, u.username AS owner, w.tags, w.labels, w.created_at,
            w.updated_at, w.last_heartbeat
        FROM workers w JOIN users u ON u.id = w.creator_id ORDER BY w.id
    """,
    "worker_roles": """
        SELECT w.worker_id AS uuid, g.group_name, r.role
        FROM group_worker r JOIN workers w ON w.id = r.worker_id JOIN groups g ON g.id = r.group_id
        ORDER BY r.id
    """,
    "archived_tasks": f"""
        {_TASK_SELECT}, t.reporter_uuid
        FROM archived_tasks t {_JOINS} ORDER BY t.id
    """,
    # Whether its upstream task still has to end decides whether a pending one goes on waiting.
    "active_tasks": f"""
        {_TASK_SELECT}, EXISTS (
            SELECT FROM active_tasks up
            WHERE up.uuid = t.upstream_task_uuid AND up.id < t.id AND up.group_id = t.group_id
        ) AS has_active_upstream
        FROM active_tasks t {_JOINS} ORDER BY t.id
    """,  # noqa: S608 - put together from the constants above
    "artifacts": """
        SELECT task_id AS task_uuid, content_type, size, created_at, updated_at
        FROM artifacts ORDER BY id
    """,
    "attachments": """
        SELECT g.group_name, a.key, a.content_type, a.size, a.created_at, a.updated_at
        FROM attachments a JOIN groups g ON g.id = a.group_id ORDER BY a.id
    """,
}

_KNOWN_COLUMNS: Final = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = ANY (current_schemas(false))
"""


class Source:
    """A snapshot of the other server's database."""

    def __init__(self, connection: "psycopg.Connection[dict[str, Any]]") -> None:
        self._connection = connection

    def check(self) -> None:
        """Raises InvalidInput with everything that keeps this from being such a database."""
        found = {
            (row["table_name"], row["column_name"])
            for row in self._connection.execute(_KNOWN_COLUMNS)
        }
        missing = [
            f"{table}.{column}"
            for table, columns in COLUMNS.items()
            for column in columns.split()
            if (table, column) not in found
        ]
        if missing:
            raise InvalidInput(
                f"source: not a database of Mitosis 0.6.8, it lacks {', '.join(missing)}"
            )
        if ("active_tasks", "task_suite_id") in found:
            self._refuse_suites()

    def batches(self, name: str) -> Iterator[list[dict[str, Any]]]:
        """The rows of one query, in order, without ever holding all of them."""
        with self._connection.cursor(name=f"import_{name}") as cursor:
            cursor.execute(QUERIES[name])
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield rows

    def _refuse_suites(self) -> None:
        """A managed task without its suite would be run by whoever polls."""
        row = self._connection.execute(
            "SELECT count(*) AS n FROM active_tasks WHERE task_suite_id IS NOT NULL"
        ).fetchone()
        if row is not None and row["n"]:
            raise InvalidInput(
                f"source: {row['n']} active tasks belong to suites, which cannot be taken over; "
                "let them end first"
            )


@contextmanager
def open_source(url: str) -> Iterator[Source]:
    """Raises psycopg.Error when it cannot be reached."""
    with psycopg.connect(
        url,
        connect_timeout=CONNECT_TIMEOUT_S,
        application_name="mitosis import",
        row_factory=dict_row,
    ) as connection:
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        source = Source(connection)
        source.check()
        yield source
