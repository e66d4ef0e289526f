"""Claims and reports in any order, stale, repeated and forged, against real PostgreSQL.

`pytest tests/property --hypothesis-profile=nightly` searches instead of repeating itself.
"""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machine import QueueMachine, laboratory


@pytest.mark.timeout(0)
def test_every_interleaving_keeps_one_owner_and_one_outcome(transactional_db: None) -> None:
    with laboratory():
        run_state_machine_as_test(QueueMachine)
