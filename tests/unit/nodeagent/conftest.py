"""A host around the agent's core, and a coordinator that talks to it."""

import pytest

from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost


@pytest.fixture
def host() -> AgentHost:
    return AgentHost()


@pytest.fixture
def coordinator(host: AgentHost) -> AgentCoordinator:
    return AgentCoordinator(host)
