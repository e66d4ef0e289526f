"""The life of one engagement of a manager with a suite, as a table.

Lingering is a finished suite whose host stays warm; it goes back to Executing when tasks come.
Released is possible from everywhere: a host that is gone cleans up by itself when it returns.
"""

from collections.abc import Mapping
from typing import Final

from mitosis_protocol.enums import AssignmentState

_A = AssignmentState

ASSIGNMENT: Final[Mapping[AssignmentState, frozenset[AssignmentState]]] = {
    _A.ASSIGNED: frozenset({_A.PREPARING, _A.EXECUTING, _A.CLEANUP, _A.RELEASED}),
    _A.PREPARING: frozenset({_A.EXECUTING, _A.CLEANUP, _A.RELEASED}),
    _A.EXECUTING: frozenset({_A.LINGERING, _A.CLEANUP, _A.RELEASED}),
    _A.LINGERING: frozenset({_A.EXECUTING, _A.CLEANUP, _A.RELEASED}),
    _A.CLEANUP: frozenset({_A.RELEASED}),
    _A.RELEASED: frozenset(),
}
