"""What the agent's core costs per task, without any I/O: the events of one task's way.

`python -m benchmarks.agent_core` prints microseconds of CPU per task. OfferTaken, FinishTask,
ResultStored and one line of ReportsAccepted, with the fetch and the frames that go with them.
"""

import statistics
import time
from itertools import count
from uuid import UUID, uuid4

from mitosis_protocol import from_manager as fm
from mitosis_protocol import ipc
from mitosis_protocol import to_manager as tm
from mitosis_protocol.enums import AssignmentState, DesiredState, ReportAnswer
from mitosis_protocol.specs import TaskSpec, WorkerSchedule
from nodeagent import effects as fx
from nodeagent import events as ev
from nodeagent.state import AgentState

WORKERS = 2
PREFETCH = 8
TASKS = 2_000
ROUNDS = 20
EVENTS_PER_TASK = 4.25  # three of its own, half of a flush and of an answer, a part of a fetch
MANAGER = UUID(int=1)


class Bench:
    """A shell that answers everything at once."""

    def __init__(self) -> None:
        self.core = AgentState(uuid4())
        self.spent_s = 0.0
        self.now = 0.0
        self.ids = count(1)
        self.shelf: list[int] = []
        self.frames: list[fm.FromManager] = []
        self.stored: list[UUID] = []
        self.suite = tm.TaskSuiteSpec(
            uuid=uuid4(),
            name="bench",
            description="",
            group_id=1,
            tags=[],
            labels=[],
            priority=0,
            worker_schedule=WorkerSchedule(WORKERS, PREFETCH),
        )
        self.workers: list[ev.WorkerKey] = []

    def do(self, event: ev.Event) -> None:
        self.now += 0.0005
        begin = time.process_time_ns()
        effects = self.core.handle(event, self.now)
        self.spent_s += (time.process_time_ns() - begin) / 1e9
        for effect in effects:
            if isinstance(effect, fx.SendFrame | fx.SyncAndSend | fx.SendHeartbeat):
                self.frames.append(effect.message)
            elif isinstance(effect, fx.PutOnShelf):
                self.shelf.extend(item.task.task_id for item in effect.items)
            elif isinstance(effect, fx.StoreResult) and effect.report.op_id is not None:
                self.stored.append(effect.report.op_id)
            elif isinstance(effect, fx.SpawnWorker):
                self.workers.append(effect.worker)

    def answer(self) -> None:
        for frame in self.frames:
            if isinstance(frame, fm.FetchTasks):
                tasks = [self.task() for _ in range(frame.max_tasks)]
                self.do(
                    ev.FrameReceived(tm.TasksAvailable(request_id=frame.request_id, tasks=tasks))
                )
            elif isinstance(frame, fm.ReportTasks):
                results = [
                    tm.ReportResult(task_id=line.task_id, answer=ReportAnswer.OK, action="end")
                    for line in frame.reports
                ]
                self.do(
                    ev.FrameReceived(
                        tm.ReportsAccepted(request_id=frame.request_id, results=results)
                    )
                )
        self.frames = [one for one in self.frames if isinstance(one, fm.Heartbeat | fm.Hello)]

    def task(self) -> tm.OfferedTask:
        return tm.OfferedTask(
            task_id=next(self.ids),
            task_uuid=uuid4(),
            spec=TaskSpec(args=["true"]),
            priority=0,
            max_failures=6,
        )

    def start(self) -> None:
        self.do(ev.Booted())
        self.do(ev.LinkUp(MANAGER))
        [hello] = self.frames
        engaged = tm.Engagement(
            assignment_id=1, suite_uuid=self.suite.uuid, state=AssignmentState.EXECUTING
        )
        assert isinstance(hello, fm.Hello)
        self.do(
            ev.FrameReceived(
                tm.Welcome(
                    request_id=hello.request_id,
                    protocol_version=1,
                    manager_uuid=MANAGER,
                    session_epoch=1,
                    lease="2m",
                    heartbeat_interval="30s",
                    config_version=1,
                    desired_state=DesiredState.ACTIVE,
                    engagement=engaged,
                    suite_spec=self.suite,
                )
            )
        )
        self.do(ev.SlotsPlanned(1, WORKERS))
        for key in self.workers:
            self.do(ev.WorkerReady(key, 1))
            self.do(ev.WorkerParked(key))
        [*_, beat] = (one for one in self.frames if isinstance(one, fm.Heartbeat))
        assert beat.request_id is not None
        self.do(
            ev.FrameReceived(
                tm.HeartbeatAck(
                    request_id=beat.request_id,
                    lease="2m",
                    config_version=1,
                    desired_state=DesiredState.ACTIVE,
                    engagement=engaged,
                )
            )
        )

    def run(self, tasks: int) -> float:
        requests = count(1)
        done = 0
        self.answer()
        while done < tasks:
            for key in self.workers:
                attempt_id = self.shelf.pop(0)
                self.do(ev.OfferTaken(key, attempt_id))
                number = next(requests)
                message = ipc.FinishTask(
                    request_id=number, attempt_id=attempt_id, exit_status=0, facts={"wall_s": 0.1}
                )
                self.do(ev.WorkerAsked(ev.RequestToken(key, number, "report"), message))
                self.do(ev.ResultStored(self.stored.pop()))
                done += 1
            self.do(ev.FlushDue())
            self.answer()
        return self.spent_s / done * 1e6


def main() -> None:
    bench = Bench()
    bench.start()
    figures: list[float] = []
    for _ in range(ROUNDS):
        bench.spent_s = -timer_s() * EVENTS_PER_TASK * TASKS
        figures.append(bench.run(TASKS))
    best, middle = min(figures), statistics.median(figures)
    print(f"agent core: {best:.1f} us of CPU per task at best, {middle:.1f} in the median")


def timer_s() -> float:
    """What one measurement itself costs."""
    begin = time.process_time_ns()
    for _ in range(1000):
        time.process_time_ns()
    return (time.process_time_ns() - begin) / 1e12


if __name__ == "__main__":
    main()
