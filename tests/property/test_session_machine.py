"""Connections of managers in any order, against real PostgreSQL."""

import pytest

from tests.figures import Figure
from tests.property.runs import examples_of
from tests.property.session_machine import SessionMachine, fleet


@pytest.mark.timeout(0)
def test_only_the_newest_session_speaks_and_the_lease_decides(
    transactional_db: None, figure: Figure
) -> None:
    with fleet():
        examples = examples_of(SessionMachine)
    figure("machine of sessions: examples of 30 steps", examples, at_least=500)
