"""What a transaction test left is gone before the next one, whatever kind of table it is in."""

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test import TransactionTestCase

from accounts.actors import SYSTEM
from accounts.services.audit import record
from tests import emptying
from tests.integration.tasks.api_world import new_user

pytestmark = pytest.mark.django_db(transaction=True)


def test_guarded_unmodelled_and_large_tables_are_emptied_and_what_migrations_wrote_stays() -> None:
    new_user("ada")
    record(actor=SYSTEM, action="test.said")  # insert-only: a plain DELETE is refused
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE large_table AS SELECT repeat('x', 500) AS t FROM generate_series(1, 4000)"
        )
        try:
            before = dict(_counts())
            assert before["audit_log"], "the guarded table has rows"
            assert before["large_table"] == 4000
            emptying.empty(TransactionTestCase())
            after = dict(_counts())
        finally:
            cursor.execute("DROP TABLE large_table")
    left = {name for name, count in after.items() if count}
    assert left == set(emptying.KEPT)
    assert all(after[name] == before[name] for name in emptying.KEPT)


def test_the_triggers_are_awake_again_afterwards() -> None:
    emptying.empty(TransactionTestCase())
    with connection.cursor() as cursor:
        cursor.execute("SHOW session_replication_role")
        assert cursor.fetchone() == ("origin",)


def _counts() -> Iterator[tuple[str, int]]:
    for name in connection.introspection.table_names():
        with connection.cursor() as cursor:
            cursor.execute(f'SELECT count(*) FROM "{name}"')
            yield name, cursor.fetchone()[0]
