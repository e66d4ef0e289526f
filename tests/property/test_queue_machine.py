"""Claims and reports in any order, stale, repeated and forged, against real PostgreSQL.

`pytest tests/property --hypothesis-profile=nightly` searches instead of repeating itself.
"""

import pytest

from tests.figures import Figure
from tests.property.machine import QueueMachine, laboratory
from tests.property.runs import examples_of


@pytest.mark.timeout(0)
def test_every_interleaving_keeps_one_owner_and_one_outcome(
    transactional_db: None, figure: Figure
) -> None:
    with laboratory():
        examples = examples_of(QueueMachine)
    figure("machine of the queue: examples of 30 steps", examples, at_least=500)
