"""The state machine of the agent's core: any event at any time, then everything must come right.

After each event the invariants hold (AgentHost.do); in the end, once the world behaves again, no
attempt, result, token or debt is left over. Run by test_agent_machine.py.
"""

from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import AssignmentState, PartitionPolicy
from mitosis_protocol.specs import WorkerSchedule
from nodeagent import events as ev
from tests.fakes.agent_suites import HOOK, make_suite
from tests.property.agent_world import World

anything = st.integers(0, 10_000)
MAX_PREPARATIONS = 4


def has(name: str) -> Any:
    return precondition(lambda self: bool(getattr(self.world, name)))


def engaged(*states: AssignmentState) -> Any:
    def is_in(self: "AgentMachine") -> bool:
        found = self.world.coordinator.engagement
        return found is not None and (not states or found.state in states)

    return precondition(is_in)


class AgentMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.is_killed = False

    @initialize(
        owes=st.booleans(),
        runs=st.booleans(),
        stock=st.integers(0, 40),
        is_killed=st.sampled_from([False, False, False, True]),
    )
    def boot(self, owes: bool, runs: bool, stock: int, is_killed: bool) -> None:
        world = self.world
        self.is_killed = is_killed
        world.coordinator.stock = stock
        if owes:
            world.debts.add(-1)
            world.preparations.append(-1)
        debts = (ev.OwedCleanup(-1, make_suite().uuid),) if owes else ()
        world.do(ev.Booted(debts=debts))
        world.connect()
        if runs:
            # Deep states at once: workers with tasks in hand and some on the shelf.
            world.calm_down()
            world.push(world.coordinator.assign(make_suite(2, 3)))
            world.calm_down()

    def teardown(self) -> None:
        if self.is_killed:
            self.world.end_by_force()
        else:
            self.world.end_in_peace()

    # --- the link and its frames

    @precondition(lambda self: not self.world.is_linked)
    @rule()
    def connect(self) -> None:
        self.world.connect()

    @precondition(lambda self: self.world.is_linked)
    @rule()
    def disconnect(self) -> None:
        self.world.disconnect()

    @has("to_coordinator")
    @rule(at=anything)
    def serve(self, at: int) -> None:
        self.world.serve(at % len(self.world.to_coordinator))

    @has("to_coordinator")
    @rule()
    def serve_all(self) -> None:
        while self.world.to_coordinator:
            self.world.serve(0)

    @has("to_agent")
    @rule(at=anything)
    def deliver(self, at: int) -> None:
        # The first frame of a socket is the welcome.
        first = 0 if not self.world.core.model.session.is_welcome else at
        self.world.deliver(first % len(self.world.to_agent))
        self.world.listen()

    @has("to_agent")
    @rule()
    def deliver_all(self) -> None:
        while self.world.to_agent:
            self.world.deliver(0)
        self.world.listen()

    @has("seen_frames")
    @rule(at=anything)
    def deliver_again(self, at: int) -> None:
        self.world.deliver_again(at)
        self.world.listen()

    @rule(at=anything)
    def time_out(self, at: int) -> None:
        waiting = list(self.world.core.model.requests.open)
        if waiting:
            self.world.do(ev.RequestTimedOut(waiting[at % len(waiting)]))
            self.world.listen()

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        self.world.calm_down()

    @has("from_ipc")
    @rule()
    def ipc_speaks(self) -> None:
        self.world.do(self.world.from_ipc.popleft())
        self.world.listen()

    @has("from_ipc")
    @rule()
    def ipc_speaks_twice(self) -> None:
        event = self.world.from_ipc.popleft()
        self.world.do(event)
        if not isinstance(event, ev.WorkerAsked):
            self.world.do(event)
        self.world.listen()

    @has("later")
    @rule(at=anything)
    def something_is_done(self, at: int) -> None:
        self.world.do(self.world.later.pop(at % len(self.world.later)))
        self.world.listen()

    @has("later")
    @rule()
    def everything_is_done(self) -> None:
        for _ in range(len(self.world.later)):
            self.world.do(self.world.later.pop(0))
        self.world.listen()

    @has("later")
    @rule(kind=st.sampled_from(["command", "timeout", "network"]))
    def a_hook_fails(self, kind: Any) -> None:
        for at, event in enumerate(self.world.later):
            if isinstance(event, ev.HookDone):
                self.world.later[at] = ev.HookDone(event.assignment_id, event.phase, kind, 1)

    @has("later")
    @rule()
    def limits_are_refused(self) -> None:
        for at, event in enumerate(self.world.later):
            if isinstance(event, ev.SlotsPlanned):
                self.world.later[at] = ev.SlotsRefused(event.assignment_id, "no cgroups")

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0, 31.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        self.world.do(ev.FlushDue())
        self.world.do(ev.Tick())
        self.world.listen()

    @rule()
    def flush(self) -> None:
        self.world.now += 0.005
        self.world.do(ev.FlushDue())

    @rule(is_full=st.booleans())
    def disk(self, is_full: bool) -> None:
        self.world.is_disk_full = is_full

    @precondition(lambda self: self.world.idle_hands())
    @rule(
        at=anything,
        how=st.sampled_from([ipc.FinishTask, ipc.FinishTask, ipc.CrashTask, ipc.DropTask]),
    )
    def a_task_ends(self, at: int, how: Any) -> None:
        self.world.end(self.world.idle_hands()[at % len(self.world.idle_hands())], how)

    @precondition(lambda self: self.world.idle_hands())
    @rule(at=anything)
    def a_worker_wants_to_start(self, at: int) -> None:
        self.world.ask_leave(self.world.idle_hands()[at % len(self.world.idle_hands())])

    @precondition(lambda self: self.world.idle_hands())
    @rule(at=anything)
    def a_worker_beats(self, at: int) -> None:
        key = self.world.idle_hands()[at % len(self.world.idle_hands())]
        self.world.ask_only(key, ipc.Heartbeat, attempt_id=self.world.hands[key])

    @precondition(lambda self: self.world.shelf and self.world.with_room())
    @rule(at=anything)
    def a_worker_is_given_one_ahead(self, at: int) -> None:
        keys = self.world.with_room()
        if self.world.is_serving:
            self.world.hand_ahead(keys[at % len(keys)])

    @has("ahead")
    @rule(at=anything)
    def a_worker_gives_back_what_it_has_ahead(self, at: int) -> None:
        keys = list(self.world.ahead)
        self.world.give_back_ahead(keys[at % len(keys)])

    @has("workers")
    @rule(at=anything, signal=st.sampled_from([None, 9, 11]))
    def a_worker_dies(self, at: int, signal: int | None) -> None:
        keys = list(self.world.workers.values())
        code = 0 if signal is None else None
        self.world.die(keys[at % len(keys)], code=code, signal=signal)

    # --- the coordinator decides

    @precondition(
        lambda self: (
            self.world.coordinator.engagement is None
            and self.world.coordinator.last_assignment < MAX_PREPARATIONS
        )
    )
    @rule(
        workers=st.integers(1, 3),
        prefetch=st.integers(0, 4),
        preparation=st.sampled_from([None, HOOK]),
        cleanup=st.sampled_from([None, HOOK]),
        policy=st.sampled_from(PartitionPolicy),
    )
    def assign(self, workers: int, prefetch: int, policy: PartitionPolicy, **hooks: Any) -> None:
        suite = make_suite(
            workers,
            min(prefetch, 4 * workers),
            env_preparation=hooks["preparation"],
            env_cleanup=hooks["cleanup"],
            on_partition=policy,
        )
        self.world.push(self.world.coordinator.assign(suite))

    @engaged()
    @rule()
    def drain(self) -> None:
        self.world.push(self.world.coordinator.drain())

    @engaged(AssignmentState.EXECUTING)
    @rule(is_paused=st.booleans())
    def pause(self, is_paused: bool) -> None:
        coordinator = self.world.coordinator
        assert coordinator.suite is not None
        coordinator.pause(is_paused=is_paused)
        kind = tm.Pause if is_paused else tm.Resume
        self.world.push(kind(suite_uuid=coordinator.suite.uuid))

    @engaged(AssignmentState.EXECUTING)
    @rule(workers=st.integers(1, 4))
    def scale(self, workers: int) -> None:
        coordinator = self.world.coordinator
        assert coordinator.suite is not None
        changed = make_suite(
            uuid=coordinator.suite.uuid,
            env_preparation=coordinator.suite.env_preparation,
            env_cleanup=coordinator.suite.env_cleanup,
            worker_schedule=WorkerSchedule(workers, 1),
        )
        self.world.push(coordinator.scale(changed))

    @engaged()
    @rule(is_hard=st.booleans())
    def cancel_suite(self, is_hard: bool) -> None:
        coordinator = self.world.coordinator
        coordinator.cancelled.update(coordinator.leased())
        assert coordinator.suite is not None
        coordinator.drain()
        self.world.push(
            tm.CancelSuite(
                suite_uuid=coordinator.suite.uuid, reason="no", cancel_running_tasks=is_hard
            )
        )

    @precondition(lambda self: self.world.coordinator.leased())
    @rule(at=anything)
    def cancel_task(self, at: int) -> None:
        leased = self.world.coordinator.leased()
        attempt_id = leased[at % len(leased)]
        self.world.coordinator.cancelled.add(attempt_id)
        self.world.push(tm.CancelTask(task_uuid=UUID(int=attempt_id), reason="no"))

    @engaged(AssignmentState.EXECUTING)
    @rule(keep=st.integers(0, 4))
    def hosts_idle_elsewhere(self, keep: int) -> None:
        coordinator = self.world.coordinator
        assert coordinator.suite is not None
        uuid = coordinator.suite.uuid
        self.world.push(tm.ReturnSurplus(suite_uuid=uuid, keep=keep, task_ids=coordinator.leased()))

    @rule()
    def the_lease_runs_out(self) -> None:
        self.world.coordinator.expire()

    @rule(stock=st.integers(1, 10))
    def tasks_are_submitted(self, stock: int) -> None:
        coordinator = self.world.coordinator
        coordinator.stock += stock
        if coordinator.suite is not None:
            self.world.push(tm.TasksReady(suite_uuid=coordinator.suite.uuid))
