"""The agent's core under any order of events; see agent_machine."""

import pytest

from tests.figures import Figure
from tests.property.agent_machine import AgentMachine
from tests.property.runs import examples_of


@pytest.mark.timeout(0)
def test_the_agent_keeps_its_promises_whatever_comes_next(figure: Figure) -> None:
    examples = examples_of(AgentMachine, steps=60)
    figure("machine of the agent: examples of 60 steps", examples, at_least=500)
