"""The one way a state column changes: a single guarded UPDATE.

`move_suite`, `move_manager` and their like call `move`; sweeps call `move_all`. Which sources
are legal comes from mitosis_protocol.transitions, so SQL, tests and docs cannot disagree.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from django.db import connections, models
from django.db.models.functions import Now
from django.db.models.sql.subqueries import UpdateQuery

from core.errors import InvalidTransition, NotFound
from mitosis_protocol.enums import CodedEnum
from mitosis_protocol.transitions import State, sources

Row = TypeVar("Row", bound=models.Model)


def move(
    rows: models.QuerySet[Row],
    to: State,
    *,
    table: Mapping[State, frozenset[State]],
    changes: Mapping[str, Any] | None = None,
    idempotent: bool = False,
) -> bool:
    """Move the one row that `rows` names to `to`, setting `changes` in the same statement.

    Raises NotFound when there is no such row and InvalidTransition when it has no such arrow;
    with `idempotent` the latter is the answer False, for callers that may have lost a race.
    """
    if move_all(rows, to, table=table, changes=changes):
        return True
    present = rows.values_list("state", flat=True).first()
    name = str(rows.model._meta.verbose_name)  # noqa: SLF001 - Django's documented model API
    if present is None:
        raise NotFound(f"{name} not found")
    if idempotent:
        return False
    raise InvalidTransition(
        f"A {name} that is {present} cannot become {to}",
        extra={"state": str(present), "wanted": str(to)},
    )


def move_all(
    rows: models.QuerySet[Row],
    to: State,
    *,
    table: Mapping[State, frozenset[State]],
    changes: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Move every row of `rows` that may become `to`; returns their primary keys.

    One statement. Filters must be on the table's own columns: after waiting for a row lock
    PostgreSQL checks those again, but not the inside of a subquery.
    """
    guarded = rows.filter(state__in=sources(table, to)).order_by()
    query = cast("UpdateQuery", guarded.query.chain(UpdateQuery))
    if len(query.alias_map) > 1:
        raise ValueError("move: filter on the table's own columns, not through a relation")
    query.add_update_values(_values(rows.model, to, changes))
    connection = connections[rows.db]
    sql, params = query.get_compiler(connection=connection).as_sql()
    pk_column = str(rows.model._meta.pk.column)  # noqa: SLF001 - as above
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} RETURNING {connection.ops.quote_name(pk_column)}", params)
        return [row[0] for row in cursor.fetchall()]


def _values(
    model: type[models.Model], to: CodedEnum, changes: Mapping[str, Any] | None
) -> dict[str, Any]:
    values: dict[str, Any] = {"state": to, **(changes or {})}
    if any(field.name == "updated_at" for field in model._meta.fields):  # noqa: SLF001 - as above
        values.setdefault("updated_at", Now())
    return values
