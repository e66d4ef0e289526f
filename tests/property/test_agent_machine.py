"""The agent's core under any order of events; see agent_machine."""

from hypothesis import settings

from tests.property.agent_machine import AgentMachine

TestAgentMachine = AgentMachine.TestCase
TestAgentMachine.settings = settings(max_examples=150, stateful_step_count=60)
