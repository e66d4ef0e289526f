"""Parameters of a sweep: `1..100`, `a,b`, `@file`, rows of CSV or JSON, and all combinations.

Pure but for the files. Used by `mitosis run` and `mitosis tasks array`; `{name}` in a command
stands for the parameter of that name, and the coordinator puts the values in.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from itertools import product
from pathlib import Path
from typing import Any, Final, TypeAlias

from mitosis_client.errors import ConfigError
from mitosis_protocol.limits import MAX_ARRAY_TASKS

Row: TypeAlias = dict[str, Any]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}")
_NUMBER: Final = r"-?[0-9]+(?:\.[0-9]+)?"
_RANGE: Final = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::({_NUMBER}))?")
MAX_ROWS: Final = 1_000_000  # ten arrays of the largest kind; more is a mistake in a range


def split_command(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command, and the `--name values` pairs behind it.

    A pair belongs to the sweep only if what stands before it has `{name}`; so a command's own
    flags, `--lr {lr}` included, stay with the command.
    """
    command = list(words)
    found: dict[str, str] = {}
    while len(command) > 2:
        flag, values = command[-2:]
        name = flag.removeprefix("--")
        if not flag.startswith("--") or name not in places(command[:-2]):
            break
        if name in found:
            raise ConfigError(f"the parameter {name!r} is given twice")
        found[name] = values
        del command[-2:]
    return command, dict(reversed(found.items()))


def places(words: Sequence[str]) -> set[str]:
    """Names that stand in braces in a command."""
    return {name for word in words for name in _PLACE.findall(word)}


def values_of(text: str) -> list[str]:
    """`1..5`, `0..1:0.25`, `a,b`, `@lines.txt`; several of them with commas."""
    if text.startswith("@"):
        return _lines(Path(text[1:]))
    values = [value for item in text.split(",") for value in _range(item)]
    if not values or values == [""]:
        raise ConfigError("a parameter needs at least one value")
    return values


def rows_of(path: Path) -> list[Row]:
    """Rows of a CSV with a header, of a JSON array of objects, or of JSON lines."""
    try:
        with path.open(encoding="utf-8", newline="") as opened:
            if path.suffix.lower() == ".csv":
                rows: list[Row] = [dict(row) for row in csv.DictReader(opened, strict=True)]
            else:
                rows = _json_rows(opened.read())
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not rows:
        raise ConfigError(f"{path}: no rows")
    for number, row in enumerate(rows, start=1):
        _check_row(path, number, row)
    return rows


def combine(parameters: Mapping[str, Sequence[str]], rows: Sequence[Row] = ()) -> Iterator[Row]:
    """Every row with every combination of values; without any, one empty row."""
    for name in parameters:
        if _NAME.fullmatch(name) is None:
            raise ConfigError(f"{name!r} cannot name a parameter")
    for row in rows or [{}]:
        for values in product(*parameters.values()):
            yield {**row, **dict(zip(parameters, values, strict=True))}


def checked_rows(
    command: Sequence[str], parameters: Mapping[str, Sequence[str]], rows: Sequence[Row] = ()
) -> list[Row]:
    """All rows of a sweep; raises ConfigError if a name is unused or there are too many."""
    count = len(rows) or 1
    for values in parameters.values():
        count *= len(values)
    if count > MAX_ROWS:
        raise ConfigError(f"{count} tasks; at most {MAX_ROWS} at a time")
    unused = sorted(set(parameters) - places(command))
    if unused:
        raise ConfigError(f"the command does not use {{{unused[0]}}}")
    return list(combine(parameters, rows))


def slices(rows: Sequence[Row], *, max_bytes: int) -> Iterator[Sequence[Row]]:
    """Parts that one array submit can take, by number and by size."""
    start, size = 0, 0
    for place, row in enumerate(rows):
        row_bytes = 24 + sum(len(name) + 6 * len(str(value)) for name, value in row.items())
        if place > start and (size + row_bytes > max_bytes or place - start >= MAX_ARRAY_TASKS):
            yield rows[start:place]
            start, size = place, 0
        size += row_bytes
    yield rows[start:]


def _range(item: str) -> list[str]:
    found = _RANGE.fullmatch(item.strip())
    if found is None:
        return [item]
    try:
        first, last = Decimal(found[1]), Decimal(found[2])
        step = Decimal(found[3]) if found[3] else Decimal(1 if last >= first else -1)
    except InvalidOperation as error:
        raise ConfigError(f"{item!r} is not a range") from error
    if step == 0 or (last - first) * step < 0:
        raise ConfigError(f"the range {item!r} never ends")
    count = int((last - first) / step) + 1
    if count > MAX_ROWS:
        raise ConfigError(f"the range {item!r} has {count} values")
    # Decimals, so that 0..1:0.1 has 0.3 and not 0.30000000000000004.
    return [format(first + step * place, "f") for place in range(count)]


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    values = [line for line in lines if line.strip()]
    if not values:
        raise ConfigError(f"{path}: no lines")
    return values


def _json_rows(text: str) -> list[Row]:
    if text.lstrip().startswith("["):
        found = json.loads(text)
    else:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
        raise ValueError("an array of objects is needed")
    return found


def _check_row(path: Path, number: int, row: Row) -> None:
    for name, value in row.items():
        if _NAME.fullmatch(str(name)) is None:
            raise ConfigError(f"{path}: {name!r} cannot name a parameter")
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(f"{path}: row {number}: {name} is neither text, number nor flag")
