"""Every broken guard is noticed: by a directed test, or by the state machine with a fixed seed."""

import inspect
import threading
from collections.abc import Callable
from types import ModuleType

import pytest

from core.pg import load_sql
from tests.integration.tasks import (
    test_cancel_tasks,
    test_claim_tasks,
    test_dependencies_graph,
    test_events_log,
    test_reap_tasks,
    test_report_tasks,
    test_submit_tasks,
)
from tests.mutants.mutants import MUTANTS, Mutant
from tests.mutants.trial import in_place, machine_fails
from tests.property.lab import Lab, query
from tests.property.machine import laboratory

MODULES = (
    test_report_tasks,
    test_claim_tasks,
    test_cancel_tasks,
    test_reap_tasks,
    test_dependencies_graph,
    test_events_log,
    test_submit_tasks,
)
# Directed tests that take seconds; the rest kills what they would kill.
SLOW = {
    "test_an_array_larger_than_one_copy_arrives_whole",
    "test_a_long_array_does_not_make_others_wait",
    "test_a_reader_in_a_storm_of_writers_sees_every_event_once",
    "test_the_texts_of_endless_crashes_are_bounded",
}
Scenario = Callable[[Lab], None]


def _scenarios(module: ModuleType) -> list[Scenario]:
    """The directed tests of a module that need nothing but a lab."""
    return [
        function
        for name, function in vars(module).items()
        if name.startswith("test_")
        and name not in SLOW
        and list(inspect.signature(function).parameters) == ["lab"]
    ]


def _likely_first(mutant: Mutant) -> list[Scenario]:
    """All scenarios, beginning with the module that is about the mutated file."""
    first = {
        "claim": test_claim_tasks,
        "settle/cancel": test_cancel_tasks,
        "settle/reap": test_reap_tasks,
        "settle/tail": test_dependencies_graph,
        "adopt": test_reap_tasks,
        "events": test_events_log,
        "submit": test_dependencies_graph,
    }
    ours = [module for prefix, module in first.items() if mutant.file.startswith(prefix)]
    ordered = [*ours, *(module for module in MODULES if module not in ours)]
    return [scenario for module in ordered for scenario in _scenarios(module)]


@pytest.mark.timeout(0)
def test_all_mutants_die(transactional_db: None, capsys: pytest.CaptureFixture[str]) -> None:
    survivors = [mutant.name for mutant in MUTANTS if not _dies(mutant)]
    with capsys.disabled():
        print(f"\n{len(MUTANTS) - len(survivors)} of {len(MUTANTS)} mutants of the statements die")
    assert survivors == []


def test_there_are_enough_mutants_and_each_fits_its_file() -> None:
    assert len(MUTANTS) >= 25
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        text = load_sql("tasks", mutant.file)
        assert text.count(mutant.old) == mutant.times, mutant.name


def _dies(mutant: Mutant) -> bool:
    with in_place(mutant):
        if any(map(_fails, _likely_first(mutant))):
            return True
        with laboratory():
            return machine_fails(100)


def _fails(scenario: Scenario) -> bool:
    # Sweeps look at the whole fleet: each scenario starts with nobody holding anything.
    query("DELETE FROM active_tasks RETURNING id")
    before = set(threading.enumerate())
    try:
        scenario(Lab())
    except Exception:  # noqa: BLE001 - whatever it is, the mutant was noticed
        return True
    finally:
        # A scenario that stopped half-way may have left a session with a lock.
        for thread in set(threading.enumerate()) - before:
            thread.join(10)
    return False
