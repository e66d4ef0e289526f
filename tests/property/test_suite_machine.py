"""Suites under people, managers and sweeps in any order, against real PostgreSQL."""

import pytest

from tests.figures import Figure
from tests.property.runs import examples_of
from tests.property.suite_machine import SuiteMachine, campaigns


@pytest.mark.timeout(0)
def test_a_suite_goes_only_where_its_table_lets_it(transactional_db: None, figure: Figure) -> None:
    with campaigns():
        examples = examples_of(SuiteMachine)
    figure("machine of suites: examples of 30 steps", examples, at_least=500)
