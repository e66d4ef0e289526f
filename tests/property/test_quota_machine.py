"""Uploads in any order against a small quota, on real PostgreSQL and S3."""

import pytest

from tests.figures import Figure
from tests.property.quota_machine import QuotaMachine, storehouse
from tests.property.runs import examples_of


@pytest.mark.timeout(0)
def test_a_group_is_charged_for_exactly_what_is_there(
    transactional_db: None, figure: Figure
) -> None:
    with storehouse():
        examples = examples_of(QuotaMachine)
    figure("machine of quotas: examples of 30 steps", examples, at_least=500)
