"""Empties the test database after a transaction test, in milliseconds.

Django truncates every table and then makes its content types and permissions anew: a tenth of a
second and more, for each of two thousand tests. Most of them leave a few rows in a few tables.
Here those rows are deleted with triggers and foreign keys asleep, tables that grew large are
truncated, and what migrations of Django's own apps wrote stays. Unlike Django's, this also empties
tables that no model stands for, so no test sees what another left there.
"""

from typing import Final

from django.core.management import call_command
from django.db import connection
from django.test import TransactionTestCase

# Written by migrate and by nobody else.
KEPT: Final = ("django_migrations", "django_content_type", "auth_permission")
# A truncation costs a new file for the table and each index; a deletion costs every row.
_LARGE_BYTES: Final = 1_000_000
_EMPTY: Final = f"""
DO $empty$
DECLARE
    one record;
BEGIN
    PERFORM set_config('session_replication_role', 'replica', true);
    FOR one IN
        SELECT c.oid::regclass AS name, pg_relation_size(c.oid) AS bytes
        FROM pg_class c
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
            AND c.relname <> ALL ('{{{",".join(KEPT)}}}'::text[])
    LOOP
        IF one.bytes > {_LARGE_BYTES} THEN
            EXECUTE format('TRUNCATE %s CASCADE', one.name);
        ELSIF one.bytes > 0 THEN
            EXECUTE format('DELETE FROM %s', one.name);
        END IF;
    END LOOP;
END
$empty$
"""


def install() -> None:
    """From now on transaction tests end with this."""
    TransactionTestCase._fixture_teardown = empty  # type: ignore[method-assign]


def empty(_test: TransactionTestCase) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        [may_silence_triggers] = cursor.fetchone()
        if may_silence_triggers:
            cursor.execute(_EMPTY)
    if not may_silence_triggers:
        # A server of somebody else, where we may only make databases.
        call_command("flush", verbosity=0, interactive=False, reset_sequences=False)
