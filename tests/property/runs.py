"""Run a machine with as many examples as a goal of ours asks for, and count them."""

from typing import Final

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

EXAMPLES: Final = 500  # on every run; a profile that searches asks for more


def examples_of(machine: type[RuleBasedStateMachine], steps: int | None = None) -> int:
    """How many examples were run; raises what the first one that fails raises."""
    count = 0

    class Counted(machine):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            nonlocal count
            count += 1
            super().__init__()

    usual = settings.default
    assert usual is not None
    how = settings(
        usual,
        max_examples=max(EXAMPLES, usual.max_examples),
        stateful_step_count=steps or usual.stateful_step_count,
    )
    run_state_machine_as_test(Counted, settings=how)
    return count
