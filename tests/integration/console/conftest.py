"""One world per test, in a transaction that is rolled back."""

import pytest

from tests.integration.console.world import World


@pytest.fixture
def world(db: None) -> World:
    return World()
