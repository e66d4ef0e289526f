"""The state machine alone notices most broken guards, without a test that points at them.

The seed is fixed, so a change of the machine, the model or the SQL that costs it its sight shows
here. Not to the last one: backoff and leases run on the real clock, so a slow machine may let an
example pass that fails on a quick one.
"""

import pytest

from tests.mutants.mutants import MUTANTS
from tests.mutants.trial import in_place, machine_fails
from tests.property.machine import laboratory

# Changing it changes which examples are drawn, and so what is found.
MAX_EXAMPLES = 30
AT_LEAST = 20
FOUND_ALONE = (
    "anybody may settle an attempt",
    "an old attempt may settle the task",
    "a late result of a lost attempt is refused",
    "an abort of a lost attempt is taken",
    "a repeated commit is stale instead of a duplicate",
    "two reports on one attempt in a batch both count",
    "anybody may start an attempt",
    "an old attempt may be started",
    "anybody may finish an attempt",
    "an attempt that was given up may be finished",
    "anybody may adopt a lost attempt",
    "an attempt that was claimed again may be adopted",
    "nothing is ever charged",
    "a lost task is charged although it was never started",
    "an excluded runner is not excluded",
    "a cancelled task may still succeed",
    "a cancelled task returns to the queue",
    "a cancel archives what a runner holds",
    "existing clients may cancel what runs",
    "reaping does not fence the session",
    "a removed runner may still report what it lost before",
    "a claim does not move the fence",
    "a claim leaves the door open for the runner that lost the task",
    "a claim ignores the backoff",
    "an older session may claim",
)


@pytest.mark.timeout(0)
def test_the_state_machine_alone_kills_what_it_is_known_to_kill(transactional_db: None) -> None:
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    survivors = []
    with laboratory():
        for name in FOUND_ALONE:
            with in_place(by_name[name]):
                if not machine_fails(MAX_EXAMPLES):
                    survivors.append(name)
    killed = len(FOUND_ALONE) - len(survivors)
    print(f"the machine alone killed {killed} of {len(FOUND_ALONE)}; survivors: {survivors}")
    assert killed >= AT_LEAST, survivors


def test_the_list_names_mutants_once() -> None:
    assert len(set(FOUND_ALONE)) == len(FOUND_ALONE)
    assert set(FOUND_ALONE) <= {mutant.name for mutant in MUTANTS}
