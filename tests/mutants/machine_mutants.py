"""What a mutant of the newer machines is; the mutants stand in a file per machine.

A place is `package/sql-file` for SQL and a dotted module for Python.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.mutants.swap import Edit, code_in_place, sql_in_place


@dataclass(frozen=True)
class MachineMutant:
    name: str
    place: str
    edits: Sequence[Edit]


def in_place(mutant: MachineMutant) -> AbstractContextManager[None]:
    package, separator, file = mutant.place.partition("/")
    if separator:
        return sql_in_place(package, file, mutant.edits, mutant.name)
    return code_in_place(mutant.place, mutant.edits, mutant.name)
