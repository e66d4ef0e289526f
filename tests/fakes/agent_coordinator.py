"""A coordinator for AgentHost that answers at once and remembers what it was told.

For tests of single rules; the one that loses frames and checks every promise is in
tests/property/agent_world.py.
"""

from itertools import count

from mitosis_protocol import from_manager as fm
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import AssignmentState, DesiredState, ReportAnswer
from mitosis_protocol.manager_reports import TaskReport
from nodeagent import events as ev
from tests.fakes.agent_host import AgentHost
from tests.fakes.agent_suites import MANAGER, make_task


class AgentCoordinator:
    """Speaks for one suite at a time."""

    def __init__(self, host: AgentHost) -> None:
        self.host = host
        self.engagement: tm.Engagement | None = None
        self.suite: tm.TaskSuiteSpec | None = None
        self.ids = count(1)

    def boot(self, *events: ev.Booted) -> None:
        self.host.do(events[0] if events else ev.Booted())

    def connect(self, held: tm.Reconciliation | None = None, **members: object) -> fm.Hello:
        """The socket opens and hello is answered."""
        host = self.host
        host.do(ev.LinkUp(MANAGER))
        [hello] = host.sent(fm.Hello)
        given: dict[str, object] = {
            "protocol_version": 1,
            "manager_uuid": MANAGER,
            "session_epoch": 1,
            "lease": "2m",
            "heartbeat_interval": "30s",
            "config_version": 1,
            "desired_state": DesiredState.ACTIVE,
            "engagement": self.engagement,
            "suite_spec": self.suite,
            "held": held or tm.Reconciliation(),
            **members,
        }
        host.frame(tm.Welcome(request_id=hello.request_id, **given))  # type: ignore[arg-type]
        return hello

    def beat(self, held: tm.Reconciliation | None = None, **members: object) -> fm.Heartbeat:
        """Answer the last heartbeat."""
        beats = self.host.sent(fm.Heartbeat)
        given: dict[str, object] = {
            "lease": "2m",
            "config_version": 1,
            "desired_state": DesiredState.ACTIVE,
            "engagement": self.engagement,
            "held": held or tm.Reconciliation(),
            **members,
        }
        last = beats[-1]
        assert last.request_id is not None
        self.host.frame(
            tm.HeartbeatAck(request_id=last.request_id, **given)  # type: ignore[arg-type]
        )
        return last

    def engage(
        self,
        suite: tm.TaskSuiteSpec,
        assignment_id: int = 1,
        state: AssignmentState = AssignmentState.EXECUTING,
        **members: object,
    ) -> None:
        """From now on this is what heartbeats are answered with."""
        self.suite = suite
        self.engagement = tm.Engagement(
            assignment_id=assignment_id,
            suite_uuid=suite.uuid,
            state=state,
            **members,  # type: ignore[arg-type]
        )

    def release(self) -> None:
        self.engagement = self.suite = None

    def assign(self, suite: tm.TaskSuiteSpec, assignment_id: int = 1) -> None:
        self.engage(suite, assignment_id)
        self.host.frame(
            tm.SuiteAssigned(suite_uuid=suite.uuid, suite_spec=suite, assignment_id=assignment_id)
        )

    def start(self, suite: tm.TaskSuiteSpec, assignment_id: int = 1) -> None:
        """A host that executes and whose claims are taken."""
        self.boot()
        self.connect()
        self.assign(suite, assignment_id)
        self.beat()

    def give(self, *attempt_ids: int, **members: object) -> fm.FetchTasks:
        """Answer the oldest open fetch with these."""
        fetch = self.host.sent(fm.FetchTasks)[0]
        tasks = [make_task(one, **members) for one in attempt_ids]
        self.host.frame(tm.TasksAvailable(request_id=fetch.request_id, tasks=tasks))
        return fetch

    def accept(
        self, answer: ReportAnswer = ReportAnswer.OK, action: str | None = None
    ) -> list[TaskReport]:
        """Answer every open report frame alike, and those that follow."""
        lines: list[TaskReport] = []
        frames = self.host.sent(fm.ReportTasks)
        while frames:
            frame = frames.pop(0)
            lines.extend(frame.reports)
            results = [
                tm.ReportResult(task_id=line.task_id, answer=answer, action=action)
                for line in frame.reports
            ]
            self.host.frame(tm.ReportsAccepted(request_id=frame.request_id, results=results))
            frames.extend(self.host.sent(fm.ReportTasks))
        return lines

    def take_back(self) -> list[int]:
        """Answer every return."""
        ids: list[int] = []
        for frame in self.host.sent(fm.ReturnTasks):
            ids.extend(frame.task_ids)
            results = [
                tm.ReportResult(task_id=one, answer=ReportAnswer.OK, action="requeue")
                for one in frame.task_ids
            ]
            self.host.frame(tm.ReportsAccepted(request_id=frame.request_id, results=results))
        return ids

    def acknowledge(self, *, success: bool = True) -> list[fm.SuiteFailed | fm.SuiteCompleted]:
        """Answer letters until none is left."""
        letters: list[fm.SuiteFailed | fm.SuiteCompleted] = []
        while True:
            found = [*self.host.sent(fm.SuiteFailed), *self.host.sent(fm.SuiteCompleted)]
            if not found:
                return letters
            for letter in found:
                letters.append(letter)
                assert letter.request_id is not None
                self.host.frame(tm.SuiteReportAck(request_id=letter.request_id, success=success))
