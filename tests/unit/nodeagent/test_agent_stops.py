"""The end of the process in the agent's core: graceful, forced, or because of the host."""

import pytest

from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import DesiredState
from nodeagent import effects as fx
from nodeagent import events as ev
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import make_suite


def test_a_graceful_shutdown_finishes_what_runs_cleans_up_and_exits(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.do(ev.ShutdownAsked())
    assert host.exited is None
    host.finish(host.key())
    host.flush()
    coordinator.accept(action="end")
    coordinator.acknowledge()
    assert host.cleanups == [1]
    assert host.exited == fx.Exit(0, "asked to stop")


def test_a_graceful_shutdown_does_not_wait_for_a_coordinator_that_is_away(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.start(make_suite(1))
    coordinator.give(1)
    host.do(ev.LinkLost())
    host.do(ev.ShutdownAsked())
    host.finish(host.key())
    host.wait(25)
    assert host.exited is not None
    assert host.outbox, "for the next life"


@pytest.mark.parametrize("is_by_frame", [True, False])
def test_a_forced_shutdown_kills_everything_and_keeps_the_debt(
    host: AgentHost, coordinator: AgentCoordinator, is_by_frame: bool
):
    coordinator.start(make_suite(2))
    coordinator.give(1, 2)
    if is_by_frame:
        host.frame(tm.Shutdown(graceful=False))
    else:
        host.do(ev.ShutdownAsked())
        host.do(ev.ShutdownAsked(is_forced=True))
    assert len(host.taken(fx.KillWorker)) == 2
    assert host.exited is not None
    assert host.debts == {1}
    assert not host.outbox, "killed by us: no crash of the task"


def test_a_forced_shutdown_cancels_the_hook_that_runs():
    host = AgentHost(is_auto=False)
    coordinator = AgentCoordinator(host)
    coordinator.boot()
    coordinator.connect()
    coordinator.assign(make_suite(1))
    host.do(host.later.pop())
    host.do(host.later.pop())
    host.do(ev.ShutdownAsked(is_forced=True))
    assert host.taken(fx.CancelHook)
    assert host.exited is None
    host.do(host.later.pop())
    assert host.exited is not None
    assert host.debts == {1}


def test_a_wish_for_shutdown_is_also_learnt_from_a_heartbeat(
    host: AgentHost, coordinator: AgentCoordinator
):
    coordinator.boot()
    coordinator.connect()
    coordinator.beat(desired_state=DesiredState.SHUTDOWN)
    assert host.exited is not None


def test_a_troubled_host_leaves_with_an_error(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.start(make_suite(1))
    host.do(ev.HostTroubled("a process cannot be killed"))
    coordinator.acknowledge()
    assert host.exited == fx.Exit(1, "a process cannot be killed")


def test_slots_that_cannot_be_emptied_make_the_host_unusable(
    host: AgentHost, coordinator: AgentCoordinator
):
    suite = make_suite(1)
    coordinator.start(suite)
    host.is_auto = False
    host.frame(tm.SuiteDrained(assignment_id=1, suite_uuid=suite.uuid, reason="done"))
    host.do(host.later.pop())
    host.later.clear()
    host.do(ev.SlotsReleased(1, "still there after 60 s"))
    host.do(host.later.pop())
    coordinator.acknowledge()
    assert host.exited == fx.Exit(1, "still there after 60 s")
