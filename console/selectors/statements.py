"""Runs the console's SQL files on Django's connection and gives frozen rows.

The files bound what they read; none of them counts a table to its end.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import connection

from core.pg import load_sql

Row = TypeVar("Row")


def fetch(name: str, row: type[Row], parameters: Mapping[str, Any]) -> list[Row]:
    """All rows of `console/sql/<name>.sql`, field order being column order."""
    with connection.cursor() as cursor:
        cursor.execute(load_sql("console", name), dict(parameters))
        return [row(*values) for values in cursor.fetchall()]


def fetch_one(name: str, row: type[Row], parameters: Mapping[str, Any]) -> Row:
    [found] = fetch(name, row, parameters)
    return found
