"""What should be true of tasks, attempts and runners, in plain Python: the oracle of the machine.

It knows at every moment who is entitled to speak for a task and who may take one. Each method
answers what the real statement has to answer and then does the same to the model.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from mitosis_protocol.enums import DependencyCondition, Outcome, ReportAnswer
from tasks.rows import ClaimVerdict, Report, SettleOp
from tests.property.records import (
    FENCED,
    FINISHING,
    LEASED,
    LOST,
    PENDING,
    READY,
    RUNNING,
    Attempt,
    Task,
    is_met,
)
from tests.property.verdicts import (
    DEATH_LIMIT,
    action_of,
    ending_of,
    found_of,
    is_retried,
    outcome_of,
)

OK, DUPLICATE, STALE = ReportAnswer.OK, ReportAnswer.OK_DUPLICATE, ReportAnswer.STALE_ATTEMPT
INVALID, FORBIDDEN = ReportAnswer.INVALID, ReportAnswer.FORBIDDEN


class Model:
    """The tasks of one lab. Runners that are `exclusive` hold one task and send no Start."""

    def __init__(self, *, exclusive: int, tagged: int) -> None:
        self.exclusive = exclusive
        self.tagged = tagged
        self.epochs: dict[int, int] = {}
        self.silent: set[int] = set()
        self.barred: set[int] = set()  # without Write or without consent
        self.tasks: dict[int, Task] = {}
        self.attempts: dict[int, Attempt] = {}

    # --- submit and claim ---

    def submit(self, task: Task, upstreams: Mapping[Task, DependencyCondition]) -> None:
        self.tasks[task.id] = task
        is_doomed = False
        for upstream, condition in upstreams.items():
            if upstream.outcome is None:
                upstream.dependents += 1
                task.state = PENDING
                task.waits_for[upstream.id] = condition
            elif not is_met(condition, upstream.outcome):
                is_doomed = True
        if is_doomed:
            self._end(task, Outcome.UPSTREAM_FAILED)

    def refusal(self, runner: int, epoch: int | None) -> ClaimVerdict | None:
        """Why this runner gets nothing, whatever waits."""
        if epoch is not None and epoch != self.epochs[runner]:
            return ClaimVerdict.SUPERSEDED
        return ClaimVerdict.LEASE_LOST if runner in self.silent else None

    def repeated(self, runner: int, claim_id: UUID) -> list[Task]:
        """What the runner holds already and is handed again instead of something new."""
        return _in_order(
            task
            for task in self.tasks.values()
            if task.runner == runner
            and (
                runner == self.exclusive
                or (task.attempt is not None and task.attempt.claim_id == claim_id)
            )
        )

    def held_by(self, runner: int) -> list[Task]:
        return [task for task in self.tasks.values() if task.runner == runner]

    def claimable(self, runner: int, *, in_suite: bool) -> list[Task]:
        if runner in self.barred:
            return []
        return _in_order(
            task
            for task in self.tasks.values()
            if not task.is_ended
            and task.state == READY
            and task.in_suite == in_suite
            and not task.is_delayed
            and not (task.is_tagged and runner != self.tagged)
            and runner not in task.excluded
        )

    def claimed(self, task: Task, runner: int, attempt_id: int, claim_id: UUID) -> None:
        attempt = Attempt(attempt_id, task, runner, claim_id)
        self.attempts[attempt_id] = attempt
        task.attempt, task.state, task.runner = attempt, LEASED, runner
        task.attempts += 1
        task.lost, task.lost_charge, task.last_op = None, 0, None
        task.is_started, task.is_overdue = runner == self.exclusive, False
        task.finish_cancelled = False

    # --- reports ---

    def start(self, attempt: Attempt, runner: int) -> ReportAnswer:
        task = attempt.task
        if attempt.runner != runner:
            return FORBIDDEN
        if not attempt.is_current or task.runner != runner:
            return STALE
        if task.state != LEASED:
            return DUPLICATE
        task.state, task.is_started = RUNNING, True
        return OK

    def progress(self, attempt: Attempt, runner: int) -> ReportAnswer:
        if attempt.runner != runner:
            return FORBIDDEN
        return OK if attempt.is_current and attempt.task.runner == runner else STALE

    def finish(self, attempt: Attempt, runner: int, *, cancelled: bool) -> ReportAnswer:
        task = attempt.task
        if attempt.runner != runner:
            return FORBIDDEN
        if not attempt.is_current or task.speaker() != runner:
            return STALE
        if task.state == FINISHING:
            return DUPLICATE if task.finish_cancelled == cancelled else INVALID
        self._take_back(task, runner)
        task.state, task.is_started, task.finish_cancelled = FINISHING, True, cancelled
        return OK

    def adopt(self, attempt: Attempt, runner: int, *, engaged: bool) -> ReportAnswer:
        task = attempt.task
        if attempt.runner != runner:
            return FORBIDDEN
        if not attempt.is_current:
            return STALE
        if task.runner == runner:
            return DUPLICATE
        if task.lost != runner or (task.in_suite and not engaged):
            return STALE
        self._take_back(task, runner)
        task.state = LEASED
        return OK

    def judge(self, attempt: Attempt, report: Report) -> ReportAnswer:
        """What a report deserves now; changes nothing."""
        task = attempt.task
        if attempt.runner != report.runner_id:
            return FORBIDDEN
        is_current = attempt.is_current
        if report.op_id in {attempt.op_id, task.last_op if is_current else None}:
            return DUPLICATE
        is_entitled = is_current and task.speaker() == report.runner_id
        if not is_entitled or not (report.op is SettleOp.COMMIT or task.is_held):
            return STALE
        if report.op is SettleOp.RELEASE and task.state != LEASED:
            return INVALID
        return OK

    def report(self, attempt: Attempt, report: Report, *, backs_off: bool = False) -> ReportAnswer:
        answer = self.judge(attempt, report)
        if answer is OK:
            self._settle(attempt.task, report, backs_off=backs_off)
        return answer

    def _settle(self, task: Task, report: Report, *, backs_off: bool) -> None:
        op, runner = report.op, report.runner_id
        cost = {SettleOp.RELEASE: 0, SettleOp.LOST: int(task.is_started)}.get(op, report.charge)
        may_retry = op is SettleOp.COMMIT and task.retries and is_retried(report)
        gives_up = op is SettleOp.FAILURE and task.deaths.get(runner, 0) + 1 >= DEATH_LIMIT
        if op in {SettleOp.ABORT, SettleOp.FAILURE} and cost:
            task.deaths[runner] = task.deaths.get(runner, 0) + 1
        action = action_of(task, op, max(cost, may_retry), may_retry=may_retry, gives_up=gives_up)
        if action == "keep":
            task.failures += cost
            task.last_op, task.finish_cancelled = report.op_id, False
            return
        self._close(task, ending_of(op, is_end=action == "end"), report.op_id)
        if action == "end":
            task.failures += cost
            self._end(task, outcome_of(task, report), report.op_id)
            return
        task.failures += max(cost, may_retry)
        if report.exclude or gives_up:
            task.excluded.add(runner)
        if backs_off and op not in {SettleOp.RELEASE, SettleOp.LOST}:
            task.is_delayed = True
        self._requeue(task, cost if op is SettleOp.LOST else None)
        task.last_op = report.op_id

    # --- the coordinator's own moves ---

    def cancel(self, task: Task, *, held: bool) -> str:
        if task.is_ended:
            return "gone"
        if task.is_held:
            if held:
                task.is_cancelled = True
            return "cancelling" if held else "held"
        if task.lost is not None:
            self._close(task, FENCED, None)
        self._end(task, Outcome.CANCELLED)
        return "end"

    def reap(self) -> list[str]:
        """Silent runners lose what they hold, and with it their session."""
        holding = {task.runner for task in self.tasks.values() if task.runner is not None}
        return self._take_all(self.silent & holding, charge=True, is_lost=True)

    def remove(self, runner: int, *, charge: bool) -> list[str]:
        """Everything goes back, and nothing the runner says later counts."""
        for task in self.tasks.values():
            if task.lost == runner:
                task.lost, task.lost_charge = None, 0
                task.is_started = task.is_overdue = False
        return self._take_all({runner}, charge=charge, is_lost=False)

    def _take_all(self, runners: set[int], *, charge: bool, is_lost: bool) -> list[str]:
        for runner in runners:
            self.epochs[runner] += 1
        answers = []
        for task in self.tasks.values():
            if task.runner not in runners:
                continue
            self._close(task, LOST, None)
            cost = int(charge and task.is_started)
            task.failures += cost
            is_spent = task.failures >= task.max_failures or task.attempts >= task.max_attempts
            if task.is_cancelled or is_spent:
                self._end(task, Outcome.CANCELLED if task.is_cancelled else Outcome.FAILED)
                answers.append("end")
            else:
                self._requeue(task, cost if is_lost else None)
                task.last_op = None
                answers.append("requeue")
        return sorted(answers)

    def end_overdue(self) -> int:
        """Held tasks that were told to stop, or should have stopped by themselves."""
        late = [
            task
            for task in self.tasks.values()
            if task.is_held and (task.is_cancelled or task.is_overdue)
        ]
        for task in late:
            self._close(task, FENCED, None)
            self._end(task, Outcome.CANCELLED if task.is_cancelled else Outcome.TIMEOUT)
        return len(late)

    def inventory(self, runner: int, said: Collection[Attempt]) -> dict[int, str]:
        found = {attempt.id: found_of(attempt, runner) for attempt in said}
        for task in self.tasks.values():
            if task.runner == runner and task.attempt is not None:
                found.setdefault(task.attempt.id, "missing")
        return found

    # --- parts ---

    def _take_back(self, task: Task, runner: int) -> None:
        task.failures -= task.lost_charge
        task.lost, task.lost_charge, task.runner = None, 0, runner
        if task.attempt is not None:
            task.attempt.ending = None

    def _close(self, task: Task, ending: int, op_id: UUID | None) -> None:
        if task.attempt is not None:
            task.attempt.op_id, task.attempt.ending = op_id, ending

    def _requeue(self, task: Task, lost_charge: int | None) -> None:
        is_lost = lost_charge is not None
        task.lost = task.runner if is_lost else None
        task.lost_charge = lost_charge or 0
        task.is_started = task.is_started and is_lost
        task.is_overdue = task.is_overdue and is_lost
        task.state, task.runner, task.finish_cancelled = READY, None, False

    def _end(self, task: Task, outcome: Outcome, op_id: UUID | None = None) -> None:
        task.outcome, task.end_op, task.runner, task.lost = outcome, op_id, None, None
        for other in list(self.tasks.values()):
            condition = other.waits_for.get(task.id)
            if condition is None or other.is_ended:
                continue
            if is_met(condition, outcome):
                del other.waits_for[task.id]
                other.state = PENDING if other.waits_for else READY
            else:
                self._end(other, Outcome.UPSTREAM_FAILED)


def _in_order(tasks: Collection[Task]) -> list[Task]:
    return sorted(tasks, key=lambda task: (-task.priority, task.id))
