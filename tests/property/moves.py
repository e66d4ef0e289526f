"""A machine whose steps are one number each; the machines of suites, sessions, tokens and quotas.

The number chooses the move and everything the move needs (see choices.py). `MOVES` names the
methods, each as often as it stands there; `oracle` is asked after every step.
"""

from abc import abstractmethod
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.property.choices import draw_with

dice = st.integers(0, 2**24 - 1)  # drawn evenly; Hypothesis prefers small ones of more bits


class MovesMachine(RuleBasedStateMachine):
    """Subclasses have a method per move that takes the draws of its step."""

    MOVES: ClassVar[str]

    @rule(dice=dice)
    def step(self, dice: int) -> None:
        draw = draw_with(dice)
        getattr(self, draw(self.MOVES.split()))(draw)

    @invariant()
    def the_database_says_what_the_model_says(self) -> None:
        self.compare()

    @abstractmethod
    def compare(self) -> None:
        """Fails if a row is not what the model says."""
