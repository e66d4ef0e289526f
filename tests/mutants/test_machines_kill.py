"""Each of the newer machines alone notices every broken guard it is about."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from core import clock
from tests.mutants.machine_mutants import MachineMutant, in_place
from tests.mutants.quota_mutants import QUOTA_MUTANTS
from tests.mutants.session_mutants import SESSION_MUTANTS
from tests.mutants.suite_mutants import SUITE_MUTANTS
from tests.mutants.token_mutants import TOKEN_MUTANTS
from tests.mutants.trial import machine_fails
from tests.property.quota_machine import QuotaMachine, storehouse
from tests.property.session_machine import SessionMachine, fleet
from tests.property.suite_machine import SuiteMachine, campaigns
from tests.property.token_machine import TokenMachine, registry

# Changing it changes which examples are drawn, and so what is found.
MAX_EXAMPLES = 200
TRIALS = (
    (SuiteMachine, campaigns, SUITE_MUTANTS),
    (SessionMachine, fleet, SESSION_MUTANTS),
    (TokenMachine, registry, TOKEN_MUTANTS),
    (QuotaMachine, storehouse, QUOTA_MUTANTS),
)


@pytest.mark.timeout(0)
@pytest.mark.parametrize(("machine", "world", "mutants"), TRIALS)
def test_a_machine_alone_kills_what_it_is_about(
    machine: type[RuleBasedStateMachine],
    world: Callable[[], AbstractContextManager[None]],
    mutants: Sequence[MachineMutant],
    transactional_db: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    survivors = []
    for mutant in mutants:
        with in_place(mutant), world():
            if not machine_fails(MAX_EXAMPLES, machine):
                survivors.append(mutant.name)
    with capsys.disabled():
        killed = len(mutants) - len(survivors)
        print(f"\n{machine.__name__} alone kills {killed} of {len(mutants)} mutants")
    assert survivors == []
    assert clock._source is None, "the clock of an example that failed"


def test_every_mutant_fits_and_has_a_name_of_its_own() -> None:
    for _, _, mutants in TRIALS:
        assert len({mutant.name for mutant in mutants}) == len(mutants) >= 4
        for mutant in mutants:
            with in_place(mutant):
                pass
