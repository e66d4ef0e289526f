"""A coordinator as the agent meets it: leases, claims, reports, inventories, engagements.

It keeps the promises of the real one (an op counts once, a claim repeats itself, a stale report is
refused) and checks those of the agent: one accepted end per attempt, nothing said about what was
never given. Time comes from the world around it.
"""

from typing import Literal
from uuid import UUID

from mitosis_protocol import from_manager as fm
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import AssignmentState, DesiredState, ManagerState, ReportAnswer
from mitosis_protocol.manager_reports import TaskReport
from tests.fakes.agent_suites import MANAGER, make_task

Where = Literal["leased", "lost", "done", "gone"]
SETTLE_S = 10.0


class Coordinator:
    """`answers_to` returns what goes back on the same socket."""

    def __init__(self) -> None:
        self.now = 0.0
        self.attempts: dict[int, Where] = {}
        self.started: set[int] = set()
        self.cancelled: set[int] = set()
        self.claimed_at: dict[int, float] = {}
        self.deaths: dict[int, int] = {}
        self.claims: dict[UUID, list[int]] = {}
        self.ops: set[UUID] = set()
        self.ended: dict[int, int] = {}
        self.last_attempt = 0
        self.last_assignment = 0
        self.stock = 0
        self.engagement: tm.Engagement | None = None
        self.suite: tm.TaskSuiteSpec | None = None
        self.desired = DesiredState.ACTIVE

    # --- decisions

    def assign(self, suite: tm.TaskSuiteSpec) -> tm.SuiteAssigned:
        self.last_assignment += 1
        self.suite = suite
        self._move(AssignmentState.ASSIGNED, self.last_assignment, suite.uuid)
        return self._assigned()

    def scale(self, suite: tm.TaskSuiteSpec) -> tm.SuiteAssigned:
        self.suite = suite
        return self._assigned()

    def drain(self) -> tm.SuiteDrained:
        assert self.engagement is not None
        engaged = self.engagement
        self._move(AssignmentState.CLEANUP, engaged.assignment_id, engaged.suite_uuid)
        return tm.SuiteDrained(
            assignment_id=engaged.assignment_id, suite_uuid=engaged.suite_uuid, reason="done"
        )

    def pause(self, *, is_paused: bool) -> None:
        assert self.engagement is not None
        engaged = self.engagement
        self._move(engaged.state, engaged.assignment_id, engaged.suite_uuid, is_paused=is_paused)

    def expire(self) -> None:
        """The lease ran out: what was started may still run somewhere."""
        for attempt_id, where in self.attempts.items():
            if where == "leased":
                self.attempts[attempt_id] = "lost"
        self.engagement = None

    def leased(self) -> list[int]:
        return [one for one, where in self.attempts.items() if where == "leased"]

    # --- frames

    def answers_to(self, message: fm.FromManager) -> list[tm.ToManager]:
        handler = {
            fm.Hello: self._hello,
            fm.Heartbeat: self._heartbeat,
            fm.FetchTasks: self._fetch,
            fm.ReportTasks: self._reports,
            fm.ReturnTasks: self._returns,
            fm.ReportTask: self._operation,
            fm.SuiteFailed: self._letter,
            fm.SuiteCompleted: self._letter,
        }.get(type(message))
        return [] if handler is None else handler(message)  # type: ignore[operator]

    def _hello(self, message: fm.Hello) -> list[tm.ToManager]:
        known = None if self.suite is None else self.suite.uuid
        if self.engagement is None and known is not None and message.suite_uuid == known:
            self.last_assignment += 1
            self._move(AssignmentState.EXECUTING, self.last_assignment, known)
        held = self._reconcile(message.inventory, 0.0 if message.is_clean else SETTLE_S)
        return [
            tm.Welcome(
                request_id=message.request_id,
                protocol_version=1,
                manager_uuid=MANAGER,
                session_epoch=1,
                lease="2m",
                heartbeat_interval="30s",
                config_version=1,
                desired_state=self.desired,
                engagement=self.engagement,
                suite_spec=None if self.engagement is None else self.suite,
                held=held,
            )
        ]

    def _heartbeat(self, message: fm.Heartbeat) -> list[tm.ToManager]:
        engaged = self.engagement
        if engaged is not None and message.assignment_id == engaged.assignment_id:
            self._follow(engaged, message.state)
        assert message.inventory is not None
        assert message.request_id is not None
        held = self._reconcile(message.inventory, SETTLE_S)
        ack = tm.HeartbeatAck(
            request_id=message.request_id,
            lease="2m",
            config_version=1,
            desired_state=self.desired,
            engagement=self.engagement,
            held=held,
        )
        return [ack, *self._suite_news(message)]

    def _suite_news(self, message: fm.Heartbeat) -> list[tm.ToManager]:
        engaged = self.engagement
        is_idle = message.state is ManagerState.IDLE
        if engaged is None:
            return []
        if engaged.state is AssignmentState.CLEANUP:
            if is_idle and message.assignment_id is None:
                self.engagement = None
                return []
            return [] if message.state is ManagerState.CLEANUP else [self.drain()]
        if not is_idle or message.assignment_id == engaged.assignment_id:
            return []
        return [self._assigned()]

    def _fetch(self, message: fm.FetchTasks) -> list[tm.ToManager]:
        assert message.claim_id is not None
        given = self.claims.get(message.claim_id)
        if given is None:
            given = self.claims[message.claim_id] = self._claim(message)
        mine = [one for one in given if self.attempts[one] == "leased"]
        tasks = [make_task(one, max_failures=1 if one % 5 == 0 else 6) for one in mine]
        middle = len(tasks) // 2
        if middle == 0:
            return [tm.TasksAvailable(request_id=message.request_id, tasks=tasks)]
        return [
            tm.TasksAvailable(request_id=message.request_id, tasks=tasks[:middle], has_more=True),
            tm.TasksAvailable(request_id=message.request_id, tasks=tasks[middle:]),
        ]

    def _claim(self, message: fm.FetchTasks) -> list[int]:
        engaged = self.engagement
        is_open = (
            engaged is not None
            and engaged.assignment_id == message.assignment_id
            and engaged.state is AssignmentState.EXECUTING
            and not engaged.is_paused
        )
        count = min(message.max_tasks, self.stock) if is_open else 0
        self.stock -= count
        given = list(range(self.last_attempt + 1, self.last_attempt + 1 + count))
        self.last_attempt += count
        for attempt_id in given:
            self.attempts[attempt_id] = "leased"
            self.claimed_at[attempt_id] = self.now
        return given

    def _reports(self, message: fm.ReportTasks) -> list[tm.ToManager]:
        results = [self._line(line) for line in message.reports]
        return [tm.ReportsAccepted(request_id=message.request_id, results=results)]

    def _line(self, line: TaskReport) -> tm.ReportResult:
        attempt_id, where = line.task_id, self.attempts.get(line.task_id)
        assert where is not None, "a report about an attempt that was never given"
        if line.op == "start":
            is_ours = where == "leased"
            if is_ours:
                self.started.add(attempt_id)
            answer = ReportAnswer.OK if is_ours else ReportAnswer.STALE_ATTEMPT
            return tm.ReportResult(
                task_id=attempt_id, answer=answer, is_cancelled=attempt_id in self.cancelled
            )
        assert line.op_id is not None
        if line.op_id in self.ops:
            return tm.ReportResult(task_id=attempt_id, answer=ReportAnswer.OK_DUPLICATE)
        if where not in ({"leased", "lost"} if line.op == "commit" else {"leased"}):
            return tm.ReportResult(task_id=attempt_id, answer=ReportAnswer.STALE_ATTEMPT)
        self.ops.add(line.op_id)
        return tm.ReportResult(
            task_id=attempt_id, answer=ReportAnswer.OK, action=self._act(line, attempt_id)
        )

    def _act(self, line: TaskReport, attempt_id: int) -> str:
        deaths = self.deaths[attempt_id] = self.deaths.get(attempt_id, 0) + 1
        if line.op == "failure" and deaths < 3 and attempt_id not in self.cancelled:
            return "keep"
        self.attempts[attempt_id] = "done" if line.op == "commit" else "gone"
        self.ended[attempt_id] = self.ended.get(attempt_id, 0) + 1
        assert self.ended[attempt_id] == 1, "two ends of one attempt"
        return "end" if line.op == "commit" else "requeue"

    def _returns(self, message: fm.ReturnTasks) -> list[tm.ToManager]:
        results: list[tm.ReportResult] = []
        for attempt_id in message.task_ids:
            answer = ReportAnswer.STALE_ATTEMPT
            if self.attempts[attempt_id] == "leased":
                is_fresh = attempt_id not in self.started
                answer = ReportAnswer.OK if is_fresh else ReportAnswer.INVALID
                if is_fresh:
                    self.attempts[attempt_id] = "gone"
            results.append(tm.ReportResult(task_id=attempt_id, answer=answer))
        return [tm.ReportsAccepted(request_id=message.request_id, results=results)]

    def _operation(self, message: fm.ReportTask) -> list[tm.ToManager]:
        if self.attempts[message.task_id] != "leased":
            stale = ReportAnswer.STALE_ATTEMPT
            return [tm.TaskReportAck(request_id=message.request_id, success=False, answer=stale)]
        return [tm.TaskReportAck(request_id=message.request_id, success=True, url="https://s3")]

    def _letter(self, message: fm.SuiteFailed | fm.SuiteCompleted) -> list[tm.ToManager]:
        engaged = self.engagement
        is_news = engaged is not None and engaged.assignment_id == message.assignment_id
        if engaged is not None and is_news:
            if isinstance(message, fm.SuiteFailed) and message.phase == "preparation":
                self._move(AssignmentState.CLEANUP, engaged.assignment_id, engaged.suite_uuid)
            else:
                self.engagement = None
        assert message.request_id is not None
        return [tm.SuiteReportAck(request_id=message.request_id, success=is_news)]

    def _reconcile(self, inventory: list[int], settle_s: float) -> tm.Reconciliation:
        piles: dict[str, list[int]] = {
            word: [] for word in ("kept", "adopted", "cancel", "settled", "revoked", "missing")
        }
        for attempt_id in inventory:
            where = self.attempts[attempt_id]
            if where == "lost":
                self.attempts[attempt_id] = "leased"
                piles["adopted"].append(attempt_id)
            elif where == "leased":
                piles["cancel" if attempt_id in self.cancelled else "kept"].append(attempt_id)
            else:
                piles["settled" if where == "done" else "revoked"].append(attempt_id)
        for attempt_id in self.leased():
            is_old = self.claimed_at[attempt_id] < self.now - settle_s
            if attempt_id not in inventory and is_old:
                self.attempts[attempt_id] = "lost"
                piles["missing"].append(attempt_id)
        return tm.Reconciliation(**piles)

    def _follow(self, engaged: tm.Engagement, state: ManagerState) -> None:
        steps = {
            ManagerState.PREPARING: AssignmentState.PREPARING,
            ManagerState.EXECUTING: AssignmentState.EXECUTING,
        }
        step = steps.get(state)
        if step is not None and engaged.state.code < min(step.code, 2):
            self._move(step, engaged.assignment_id, engaged.suite_uuid, is_paused=engaged.is_paused)

    def _assigned(self) -> tm.SuiteAssigned:
        assert self.suite is not None
        assert self.engagement is not None
        return tm.SuiteAssigned(
            suite_uuid=self.suite.uuid,
            suite_spec=self.suite,
            assignment_id=self.engagement.assignment_id,
        )

    def _move(
        self,
        state: AssignmentState,
        assignment_id: int,
        suite_uuid: UUID,
        *,
        is_paused: bool = False,
    ) -> None:
        self.engagement = tm.Engagement(
            assignment_id=assignment_id, suite_uuid=suite_uuid, state=state, is_paused=is_paused
        )
