"""The served application of the access tests."""

from collections.abc import Iterator

import pytest

from tests.integration.workers.inprocess import Site


@pytest.fixture
def site(transactional_db: None) -> Iterator[Site]:
    served = Site()
    yield served
    served.close()
