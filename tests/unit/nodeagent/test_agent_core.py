"""The rest of the agent's core: everything is handled, prefetch arithmetic, reasons of exits."""

import typing
from itertools import pairwise
from uuid import UUID

import pytest

from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import ManagerState
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.transitions import MANAGER
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent import state
from nodeagent.buffer import wanted
from nodeagent.core.model import STATE_OF, Model, Settings, Step
from nodeagent.failures import ExitReason, reason_of
from tests.fakes.agent_coordinator import AgentCoordinator
from tests.fakes.agent_host import AgentHost


def test_every_event_has_a_handler():
    assert set(state._HANDLERS) == set(typing.get_args(ev.Event))


def test_every_frame_has_a_handler():
    assert set(state._FRAMES) == set(typing.get_args(tm.ToManager))


def test_steps_follow_the_table_of_manager_states():
    states = [STATE_OF[step] for step in Step]
    for earlier, later in pairwise(states):
        assert earlier is later or later in MANAGER[earlier]
    assert ManagerState.IDLE in MANAGER[states[-1]]


def test_ids_are_never_drawn_twice():
    model = Model(UUID(int=2**127 + 12345), Settings())
    drawn = {model.draw_id() for _ in range(1000)}
    assert len(drawn) == 1000


def test_a_frame_without_a_link_is_ignored(host: AgentHost):
    host.do(ev.Booted())
    host.frame(tm.Shutdown(graceful=False))
    assert host.exited is None


def test_an_error_that_answers_nothing_is_noted(host: AgentHost, coordinator: AgentCoordinator):
    coordinator.boot()
    coordinator.connect()
    host.frame(tm.Error(code=ErrorCode.INTERNAL, message="oops"))
    assert any(one.event == "coordinator.refused" for one in host.taken(fx.Note))


def test_nothing_is_done_after_the_exit(host: AgentHost):
    host.do(ev.Booted())
    host.do(ev.ShutdownAsked())
    assert host.exited is not None
    assert host.do(ev.Tick()) == []


@pytest.mark.parametrize(
    ("waiting", "idle", "prefetch", "want"),
    [
        (0, 0, 0, 0),
        (0, 2, 0, 2),
        (1, 2, 0, 1),
        (2, 2, 0, 0),
        (0, 0, 8, 8),
        (4, 0, 8, 4),
        (5, 0, 8, 0),
        (0, 2, 8, 10),
        (10, 2, 8, 0),
        (0, 0, 1, 1),
        (1, 0, 1, 0),
    ],
)
def test_how_much_is_fetched(waiting: int, idle: int, prefetch: int, want: int):
    assert wanted(waiting=waiting, idle=idle, prefetch=prefetch) == want


@pytest.mark.parametrize(
    ("reason", "deaths", "words"),
    [
        (ExitReason(signal=11), 2, "killed by SIGSEGV"),
        (ExitReason(signal=4), 2, "killed by SIGILL"),
        (ExitReason(signal=7), 2, "killed by SIGBUS"),
        (ExitReason(signal=8), 2, "killed by SIGFPE"),
        (ExitReason(signal=9), 3, "killed by SIGKILL"),
        (ExitReason(signal=6), 3, "killed by SIGABRT"),
        (ExitReason(signal=15), 3, "killed by SIGTERM"),
        (ExitReason(signal=63), 3, "killed by signal 63"),
        (ExitReason(code=0), 3, "exit code 0"),
        (ExitReason(code=1), 3, "exit code 1"),
        (ExitReason(), 3, "unknown exit"),
    ],
)
def test_when_a_host_gives_a_task_up(reason: ExitReason, deaths: int, words: str):
    assert reason.gives_up_after() == deaths
    assert reason.describe() == words


def test_reasons_are_read_from_wait_statuses():
    assert reason_of(11) == ExitReason(signal=11)
    assert reason_of(11 | 0x80) == ExitReason(signal=11), "with a core dump"
    assert reason_of(3 << 8) == ExitReason(code=3)
