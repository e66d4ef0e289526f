"""Every broken guard of the agent's core is noticed: by a directed test or by the machine."""

import inspect
from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.mutants.agent_mutants import AGENT_MUTANTS, AgentMutant, in_place
from tests.property.agent_machine import AgentMachine
from tests.unit.nodeagent import (
    test_agent_ahead,
    test_agent_guards,
    test_agent_life_cycle,
    test_agent_reports,
    test_agent_session,
    test_agent_stops,
    test_agent_suite_changes,
    test_agent_supply,
    test_agent_tasks,
    test_agent_workers,
)

MODULES = (
    test_agent_reports,
    test_agent_workers,
    test_agent_ahead,
    test_agent_session,
    test_agent_supply,
    test_agent_tasks,
    test_agent_stops,
    test_agent_suite_changes,
    test_agent_guards,
    test_agent_life_cycle,
)
MACHINE_EXAMPLES = 60
Scenario = Callable[[], None]


def _scenarios(module: ModuleType) -> list[Scenario]:
    """The directed tests that need nothing but a host and a coordinator."""

    def bound(function: Callable[..., None], names: list[str]) -> Scenario:
        def run() -> None:
            host = AgentHost()
            parts = {"host": host, "coordinator": AgentCoordinator(host)}
            function(**{name: parts[name] for name in names})

        return run

    found = []
    for name, function in vars(module).items():
        if name.startswith("test_") and inspect.isfunction(function):
            names = list(inspect.signature(function).parameters)
            if set(names) <= {"host", "coordinator"}:
                found.append(bound(function, names))
    return found


@pytest.mark.timeout(0)
def test_all_mutants_of_the_agent_die(capsys: pytest.CaptureFixture[str]) -> None:
    scenarios = [one for module in MODULES for one in _scenarios(module)]
    assert not any(map(_fails, scenarios)), "unharmed, every scenario holds"
    survivors = [mutant.name for mutant in AGENT_MUTANTS if not _dies(mutant, scenarios)]
    with capsys.disabled():
        killed = len(AGENT_MUTANTS) - len(survivors)
        print(f"\n{killed} of {len(AGENT_MUTANTS)} mutants of the agent's core die")
    assert survivors == [], "\n".join(survivors)


def test_there_are_enough_and_their_names_differ() -> None:
    assert len(AGENT_MUTANTS) >= 20
    assert len({mutant.name for mutant in AGENT_MUTANTS}) == len(AGENT_MUTANTS)


def _dies(mutant: AgentMutant, scenarios: list[Scenario]) -> bool:
    with in_place(mutant):
        return any(map(_fails, scenarios)) or _fails(_machine)


def _fails(scenario: Scenario) -> bool:
    try:
        scenario()
    except Exception:  # noqa: BLE001 - whatever it is, the mutant was noticed
        return True
    return False


def _machine() -> None:
    short = settings(
        max_examples=MACHINE_EXAMPLES,
        stateful_step_count=60,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(AgentMachine, settings=short)
