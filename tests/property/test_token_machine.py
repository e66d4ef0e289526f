"""Tokens in any order, repeated and stolen, against real PostgreSQL."""

import pytest

from tests.figures import Figure
from tests.property.runs import examples_of
from tests.property.token_machine import TokenMachine, registry


@pytest.mark.timeout(0)
def test_a_token_is_good_exactly_while_its_family_says_so(
    transactional_db: None, figure: Figure
) -> None:
    with registry():
        examples = examples_of(TokenMachine)
    figure("machine of tokens: examples of 30 steps", examples, at_least=500)
