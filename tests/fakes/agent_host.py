"""Everything around the agent's core, made of lists: shelf, outbox, debt book, workers, hooks.

`do` hands an event to the core, checks the invariants and carries the effects out. What a real
part would answer at once is answered at once; the rest waits in `later` until it is delivered.
"""

import re
from collections import deque
from typing import TypeVar
from uuid import UUID, uuid4

from mitosis_protocol import ipc
from mitosis_protocol.from_manager import FetchTasks, FromManager
from mitosis_protocol.manager_reports import TaskReport
from mitosis_protocol.to_manager import ToManager
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent.core.model import Settings, Step
from nodeagent.failures import ExitReason
from nodeagent.state import AgentState

E = TypeVar("E", bound=fx.Effect)
M = TypeVar("M", bound=FromManager)


class AgentHost:
    """A host whose parts answer as the real ones do; `is_auto` False leaves answers in `later`."""

    def __init__(self, *, is_auto: bool = True, settings: Settings | None = None) -> None:
        self.now = 1000.0
        self.core = AgentState(uuid4(), settings=settings)
        self.is_auto = is_auto
        self.unread: list[fx.Effect] = []
        self.later: list[ev.Event] = []
        self.from_ipc: deque[ev.Event] = deque()
        self._posted: deque[ev.Event] = deque()
        self._is_busy = False
        self.shelf: deque[ipc.WorkItem] = deque()
        self.is_serving = True
        self.parked: list[ev.WorkerKey] = []
        self.workers: dict[int, ev.WorkerKey] = {}  # processes that live
        self.dismissed: set[ev.WorkerKey] = set()
        self.hands: dict[ev.WorkerKey, int] = {}
        self.ahead: dict[ev.WorkerKey, int] = {}
        self.outbox: dict[UUID, TaskReport] = {}
        self.is_disk_full = False
        self.debts: set[int] = set()
        self.preparations: list[int] = []
        self.cleanups: list[int] = []
        self.open_tokens: set[ev.RequestToken] = set()
        self.answers: dict[ev.RequestToken, ipc.ToWorker] = {}
        self.exited: fx.Exit | None = None
        self._next_request = 0

    # --- driving

    def do(self, event: ev.Event) -> list[fx.Effect]:
        """Everything the event brings about, with the answers of the parts that answer at once."""
        self._posted.append(event)
        if self._is_busy:
            return []
        self._is_busy = True
        seen: list[fx.Effect] = []
        while self._posted:
            happened = self._posted.popleft()
            made = self.core.handle(happened, self.now)
            for effect in made:
                self._carry_out(effect)
            self.core.check_invariants()
            seen.extend(made)
        self._is_busy = False
        self.unread.extend(seen)
        if self.is_auto:
            self._settle(seen)
        return seen

    def _settle(self, seen: list[fx.Effect]) -> None:
        while self.from_ipc:
            seen.extend(self.do(self.from_ipc.popleft()))
        while self.later:
            seen.extend(self.do(self.later.pop(0)))

    def frame(self, message: ToManager) -> list[fx.Effect]:
        return self.do(ev.FrameReceived(message))

    def wait(self, seconds: float, step: float = 0.25) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + step)
            self.do(ev.Tick())

    def flush(self) -> None:
        self.now += 0.005
        self.do(ev.FlushDue())

    def taken(self, kind: type[E]) -> list[E]:
        """Effects of that kind not looked at yet."""
        found = [effect for effect in self.unread if isinstance(effect, kind)]
        self.unread = [effect for effect in self.unread if not isinstance(effect, kind)]
        return found

    def sent(self, kind: type[M]) -> list[M]:
        """Frames of that kind not looked at yet."""
        found: list[M] = []
        rest: list[fx.Effect] = []
        for effect in self.unread:
            message = getattr(effect, "message", None)
            is_frame = isinstance(effect, fx.SendFrame | fx.SendHeartbeat | fx.SyncAndSend)
            if is_frame and isinstance(message, kind):
                found.append(message)
            else:
                rest.append(effect)
        self.unread = rest
        return found

    # --- workers

    def ask(self, key: ev.WorkerKey, kind: type[ipc.FromWorker], **members: object) -> ipc.ToWorker:
        """What the worker hears, or KeyError if it is not answered yet."""
        return self.answers[self.ask_only(key, kind, **members)]

    def ask_only(
        self, key: ev.WorkerKey, kind: type[ipc.FromWorker], **members: object
    ) -> ev.RequestToken:
        self._next_request += 1
        service = "heartbeat" if kind is ipc.Heartbeat else "report"
        token = ev.RequestToken(key, self._next_request, service)  # type: ignore[arg-type]
        message = kind(request_id=self._next_request, **members)  # type: ignore[arg-type]
        self.open_tokens.add(token)
        asked = ev.WorkerAsked(token, message)
        if self.is_auto:
            self.do(asked)
        else:
            self.from_ipc.append(asked)
        return token

    def finish(self, key: ev.WorkerKey, exit_status: int = 0, **members: object) -> ipc.ToWorker:
        """Report and fetch again."""
        attempt_id = self.hands[key]
        answer = self.ask(
            key, ipc.FinishTask, attempt_id=attempt_id, exit_status=exit_status, **members
        )
        if isinstance(answer, ipc.Done):
            self.go_on(key)
        return answer

    def go_on(self, key: ev.WorkerKey) -> None:
        """With what it has ahead, or with whatever it gets."""
        self.hands.pop(key, None)
        if key in self.ahead:
            self.hands[key] = self.ahead.pop(key)
        else:
            self.fetch(key)

    def let_go(self, key: ev.WorkerKey) -> None:
        self.hands.pop(key, None)
        self.ahead.pop(key, None)

    def hand_ahead(self, key: ev.WorkerKey) -> None:
        """The oldest of the shelf, beside what it has. As the IPC does with an answer."""
        item = self.shelf.popleft()
        self.ahead[key] = item.task.task_id
        self.from_ipc.append(ev.OfferTaken(key, item.task.task_id, is_ahead=True))
        if self.is_auto and not self._is_busy:
            self._settle([])

    def give_back_ahead(self, key: ev.WorkerKey) -> ev.RequestToken:
        """What it runs takes its time."""
        return self.ask_only(key, ipc.DropTask, attempt_id=self.ahead.pop(key), has_started=False)

    def fetch(self, key: ev.WorkerKey) -> None:
        """As the IPC thread answers it."""
        if key in self.dismissed:
            self.die(key, code=0)
            return
        self.parked.append(key)
        if self.shelf and self.is_serving:
            self._match()
        else:
            self.from_ipc.append(ev.WorkerParked(key))
        if self.is_auto and not self._is_busy:
            self._settle([])

    def die(self, key: ev.WorkerKey, code: int | None = None, signal: int | None = None) -> None:
        if self.workers.get(key.local_id) != key:
            return
        del self.workers[key.local_id]
        self.let_go(key)
        self.dismissed.discard(key)
        self.parked = [one for one in self.parked if one != key]
        self.open_tokens = {one for one in self.open_tokens if one.worker != key}
        event = ev.WorkerExited(key, ExitReason(code=code, signal=signal))
        if self.is_auto and not self._is_busy:
            self.do(event)
        else:
            self.later.append(event)

    def _match(self) -> None:
        while self.parked and self.shelf and self.is_serving:
            key, item = self.parked.pop(0), self.shelf.popleft()
            self.hands[key] = item.task.task_id
            self.from_ipc.append(ev.OfferTaken(key, item.task.task_id))

    # --- effects

    def _carry_out(self, effect: fx.Effect) -> None:
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", type(effect).__name__).lower()
        carry = getattr(self, f"_do_{name}", None)
        if carry is not None:
            carry(effect)

    def _do_put_on_shelf(self, effect: fx.PutOnShelf) -> None:
        if effect.at_front:
            self.shelf.extendleft(reversed(effect.items))
        else:
            self.shelf.extend(effect.items)
        self._match()

    def _do_withdraw(self, effect: fx.Withdraw) -> None:
        count = min(effect.at_most, len(self.shelf))
        taken = [self.shelf.pop().task.task_id for _ in range(count)]
        self._posted.append(ev.Withdrawn(tuple(taken)))

    def _do_remove(self, effect: fx.Remove) -> None:
        here = [one for one in self.shelf if one.task.task_id in effect.attempt_ids]
        self.shelf = deque(one for one in self.shelf if one not in here)
        self._posted.append(ev.Withdrawn(tuple(one.task.task_id for one in here)))

    def _do_set_serving(self, effect: fx.SetServing) -> None:
        self.is_serving = effect.is_serving
        self._match()

    def _do_store_result(self, effect: fx.StoreResult) -> None:
        op_id = effect.report.op_id
        assert op_id is not None
        if self.is_disk_full:
            self._posted.append(ev.ResultRefused(op_id, "disk full"))
        else:
            self.outbox[op_id] = effect.report
            self._posted.append(ev.ResultStored(op_id))

    def _do_forget_results(self, effect: fx.ForgetResults) -> None:
        for op_id in effect.op_ids:
            del self.outbox[op_id]

    def _do_sync_and_send(self, effect: fx.SyncAndSend) -> None:
        lines = [line for line in effect.message.reports if line.op != "start"]
        assert all(line.op_id in self.outbox for line in lines), "sent before it was stored"
        self._on_sent(effect.message)

    def _do_send_frame(self, effect: fx.SendFrame) -> None:
        if isinstance(effect.message, FetchTasks):
            assert self.core.model.is_accepting, "fetched for nobody"
        self._on_sent(effect.message)

    def _do_send_heartbeat(self, effect: fx.SendHeartbeat) -> None:
        self._on_sent(effect.message)

    def _on_sent(self, message: FromManager) -> None:
        """For a coordinator that listens."""

    def _do_reply_ipc(self, effect: fx.ReplyIpc) -> None:
        token = effect.token
        assert token not in self.answers, "a token was answered twice"
        assert token.request_id == effect.answer.request_id
        self.answers[token] = effect.answer
        self.open_tokens.discard(token)

    def _do_plan_slots(self, effect: fx.PlanSlots) -> None:
        count = effect.suite.worker_schedule.worker_count
        self.later.append(ev.SlotsPlanned(effect.assignment_id, count))

    def _do_spawn_worker(self, effect: fx.SpawnWorker) -> None:
        assert effect.worker.local_id not in self.workers, "two workers in one slot"
        self.workers[effect.worker.local_id] = effect.worker
        self.later.append(ev.WorkerSpawned(effect.worker, 100))
        self.from_ipc.append(ev.WorkerReady(effect.worker, 100))
        self.fetch(effect.worker)

    def _do_kill_worker(self, effect: fx.KillWorker) -> None:
        self.die(effect.worker, signal=9)

    def _do_dismiss_worker(self, effect: fx.DismissWorker) -> None:
        self.dismissed.add(effect.worker)
        if effect.worker in self.parked:
            self.die(effect.worker, code=0)

    def _do_release_slots(self, effect: fx.ReleaseSlots) -> None:
        assert not self.workers, "slots released under a worker"
        self.later.append(ev.SlotsReleased(effect.assignment_id))

    def _do_owe_cleanup(self, effect: fx.OweCleanup) -> None:
        self.debts.add(effect.assignment_id)
        self.later.append(ev.DebtOwed(effect.assignment_id))

    def _do_settle_debt(self, effect: fx.SettleDebt) -> None:
        self.debts.remove(effect.assignment_id)

    def _do_run_hook(self, effect: fx.RunHook) -> None:
        assert effect.assignment_id in self.debts, "a hook without a debt"
        if effect.phase == "cleanup":
            self.cleanups.append(effect.assignment_id)
        elif effect.suite is not None and effect.suite.env_cleanup is not None:
            self.preparations.append(effect.assignment_id)
        self.later.append(ev.HookDone(effect.assignment_id, effect.phase, "ok"))

    def _do_cancel_hook(self, effect: fx.CancelHook) -> None:
        for at, event in enumerate(self.later):
            if isinstance(event, ev.HookDone) and event.phase == effect.phase:
                self.later[at] = ev.HookDone(event.assignment_id, event.phase, "cancelled")

    def _do_exit(self, effect: fx.Exit) -> None:
        self.exited = effect

    # --- looking

    @property
    def step(self) -> Step | None:
        engaged = self.core.model.engagement
        return None if engaged is None else engaged.step

    def key(self, local_id: int = 0) -> ev.WorkerKey:
        return self.workers[local_id]
