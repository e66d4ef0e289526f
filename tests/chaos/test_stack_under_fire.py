"""The short, seeded fault run of `make test`: kills, pauses and a dead supervisor."""

from pathlib import Path

import pytest

from tests.chaos.stack_nemesis import orphans, run
from tests.e2e.stack_client import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SEED = 20_261
FAULTS = 15


def test_no_acknowledged_task_is_lost_or_doubled_under_random_faults(tmp_path: Path):
    stack = Stack(tmp_path / "data")
    stack.up()
    try:
        verdict = run(stack, seed=SEED, faults=FAULTS)
    finally:
        stack.down()
    assert verdict.faults == FAULTS
    assert verdict.tasks > 0
    assert (verdict.lost, verdict.doubled, verdict.stuck) == (0, 0, 0), str(verdict)
    assert not orphans(stack)
