"""Hypothesis profiles: `ci` is the default and repeats itself exactly; `nightly` searches.

How many examples a machine runs at least says runs.py.
"""

import pytest
from hypothesis import HealthCheck, settings

SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]

settings.register_profile(
    "ci",
    max_examples=60,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=SLOW_IS_FINE,
)
settings.register_profile(
    "nightly",
    max_examples=5000,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=SLOW_IS_FINE,
)


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("ci")
