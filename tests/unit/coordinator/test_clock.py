"""The wall clock of the coordinator."""

import contextlib
from datetime import UTC, datetime

from core import clock


def test_now_is_aware_and_in_utc():
    before = datetime.now(UTC)
    assert before <= clock.now() <= datetime.now(UTC)
    assert clock.now().tzinfo is UTC


def test_a_test_may_stop_the_clock_and_it_runs_again_afterwards():
    noon = datetime(2025, 1, 1, 12, tzinfo=UTC)
    with clock.using(lambda: noon):
        assert clock.now() == noon
    assert clock.now() > noon


def test_the_clock_runs_again_after_a_failing_test():
    noon = datetime(2025, 1, 1, 12, tzinfo=UTC)
    with contextlib.suppress(KeyError), clock.using(lambda: noon):
        raise KeyError
    assert clock.now() > noon
