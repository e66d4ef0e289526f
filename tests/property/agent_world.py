"""The agent's core between a coordinator and a host where everything may be late, lost or twice.

Frames wait in both directions until they are delivered, in any order; a broken link loses them.
Workers obey, crash, die or dawdle. Driven by tests/property/agent_machine.py.
"""

from mitosis_protocol import from_manager as fm
from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from nodeagent import effects as fx
from nodeagent import events as ev
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import MANAGER
from tests.property.agent_coordinator import Coordinator

MAX_STEPS = 2000  # of a calm end; more is a loop
_ENDS = (ipc.FinishTask, ipc.CrashTask, ipc.DropTask)


class World(AgentHost):
    """Nothing happens by itself but what the real parts do at once."""

    def __init__(self) -> None:
        super().__init__(is_auto=False)
        self.coordinator = Coordinator()
        self.to_coordinator: list[fm.FromManager] = []
        self.to_agent: list[tm.ToManager] = []
        self.seen_frames: list[tm.ToManager] = []
        self.is_linked = False
        self.stops: dict[int, str] = {}
        self.asked: dict[ev.WorkerKey, tuple[ev.RequestToken, type[ipc.FromWorker]]] = {}
        self.said: dict[ev.WorkerKey, tuple[ev.RequestToken, int]] = {}  # and not waited for
        self.permitted: set[tuple[ev.WorkerKey, int]] = set()
        self.ran: dict[int, int] = {}

    # --- the link

    def connect(self) -> None:
        self.is_linked = True
        self.do(ev.LinkUp(MANAGER))

    def disconnect(self) -> None:
        self.is_linked = False
        self.to_coordinator.clear()
        self.to_agent.clear()
        self.do(ev.LinkLost("cut"))

    def _on_sent(self, message: fm.FromManager) -> None:
        assert self.is_linked, "a frame without a link"
        self.to_coordinator.append(message)

    def push(self, message: tm.ToManager) -> None:
        if self.is_linked:
            self.to_agent.append(message)

    def serve(self, at: int) -> None:
        """The coordinator handles one frame; requests overtake each other."""
        self.coordinator.now = self.now
        message = self.to_coordinator.pop(at)
        self.to_agent.extend(self.coordinator.answers_to(message))

    def deliver(self, at: int) -> None:
        message = self.to_agent.pop(at)
        self.seen_frames.append(message)
        self.frame(message)

    def deliver_again(self, at: int) -> None:
        """A frame that was seen before, as after a clumsy resend."""
        self.frame(self.seen_frames[at % len(self.seen_frames)])

    # --- workers

    def _do_publish(self, effect: fx.Publish) -> None:
        if isinstance(effect.message, ipc.CancelTask):
            self.stops[effect.message.attempt_id] = effect.message.why

    def end(self, key: ev.WorkerKey, how: type[ipc.FromWorker]) -> None:
        """The worker says the last word on what it holds."""
        attempt_id = self.hands[key]
        why = self.stops.get(attempt_id)
        members: dict[str, object] = {"attempt_id": attempt_id}
        if why == "revoked":
            how = ipc.DropTask
        if key in self.said and how is not ipc.DropTask:
            return  # one last word at a time
        if how is ipc.FinishTask and key in self.ahead:
            self._say(key, attempt_id)
            self.go_on(key)
            return
        if how is ipc.FinishTask:
            members["exit_status"] = 0
        elif how is ipc.CrashTask:
            members |= {"signal": 11, "reason": "segmentation fault"}
        else:
            members["has_started"] = why == "revoked"
        self.asked[key] = (self.ask_only(key, how, **members), how)

    def _say(self, key: ev.WorkerKey, attempt_id: int) -> None:
        token = self.ask_only(key, ipc.FinishTask, attempt_id=attempt_id, exit_status=0)
        self.said[key] = (token, attempt_id)

    def ask_leave(self, key: ev.WorkerKey) -> None:
        token = self.ask_only(key, ipc.StartTask, attempt_id=self.hands[key])
        self.asked[key] = (token, ipc.StartTask)

    def listen(self) -> None:
        """Workers act on the answers they got; done after every step."""
        for key, (token, attempt_id) in list(self.said.items()):
            if self.workers.get(key.local_id) != key:
                del self.said[key]
            elif token in self.answers:
                del self.said[key]
                answer = self.answers[token]
                if isinstance(answer, ipc.Refused) and answer.is_retryable:
                    self._say(key, attempt_id)
        for key, (token, kind) in list(self.asked.items()):
            if self.workers.get(key.local_id) != key:
                del self.asked[key]
            elif token in self.answers:
                del self.asked[key]
                self._act_on(key, kind, self.answers[token])

    def _act_on(self, key: ev.WorkerKey, kind: type[ipc.FromWorker], answer: ipc.ToWorker) -> None:
        if isinstance(answer, ipc.Refused) and answer.is_retryable:
            return  # it asks again when the machine lets it
        is_gone = isinstance(answer, ipc.Refused)
        if kind is ipc.StartTask and not is_gone:
            assert isinstance(answer, ipc.StartReply)
            if answer.may_run:
                self.permitted.add((key, self.hands[key]))
            return
        if kind in _ENDS or is_gone:
            self.stops.pop(self.hands.get(key, 0), None)
            self.go_on(key)

    def idle_hands(self) -> list[ev.WorkerKey]:
        """Workers that hold a task and do not wait for an answer about it."""
        return [
            key
            for key in self.hands
            if self.workers.get(key.local_id) == key and key not in self.asked
        ]

    def with_room(self) -> list[ev.WorkerKey]:
        """Workers that could be given one ahead."""
        return [key for key in self.idle_hands() if key not in self.ahead]

    # --- to the end

    def calm_down(self) -> None:
        """Everything that is under way arrives, and workers do what they are told."""
        for _ in range(MAX_STEPS):
            if not (self.from_ipc or self.later or self.to_coordinator or self.to_agent):
                return
            if self.from_ipc:
                self.do(self.from_ipc.popleft())
            elif self.later:
                self.do(self.later.pop(0))
            elif self.to_coordinator:
                self.serve(0)
            else:
                self.deliver(0)
            self.listen()
        raise AssertionError(f"it never calms down: {self.later}, {self.to_agent}")

    def run_out(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until and self.exited is None:
            self.calm_down()
            for key in self.idle_hands():
                self.end(key, ipc.FinishTask)
            self.calm_down()
            self.now += 1.0
            self.do(ev.FlushDue())
            self.do(ev.Tick())
        self.calm_down()

    def end_in_peace(self) -> None:
        """The world behaves again: everything has to come right."""
        self.is_disk_full = False
        if not self.is_linked:
            self.connect()
        self.run_out(60)
        self.do(ev.ShutdownAsked())
        self.run_out(600)
        model = self.core.model
        assert self.exited is not None, (self.step, model.ledger.attempts)
        assert not self.outbox, "results that nobody took"
        assert not self.open_tokens, "workers without an answer"
        assert not model.ledger.attempts, "attempts that nobody answers for"
        assert not self.debts, "cleanups that never ran"
        assert not self.workers, "workers that never left"
        assert len(self.cleanups) == len(set(self.cleanups)), "cleaned up twice"
        assert not set(self.preparations) - set(self.cleanups), "prepared, never cleaned up"

    def end_by_force(self) -> None:
        """Nothing runs on, and whatever is owed is still written down."""
        self.do(ev.ShutdownAsked(is_forced=True))
        self.run_out(15)
        assert self.exited is not None
        assert not self.workers, "workers that outlive the agent"
        assert not set(self.preparations) - set(self.cleanups) - self.debts
