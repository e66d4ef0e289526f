"""What the coordinator answers, as typed values. Unknown members are ignored.

Times stay the text the coordinator sent; enums of the protocol stay text too, so that a newer
coordinator's new value does not break an older client.
"""

from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""

    def as_dict(self) -> dict[str, Any]:
        """Plain builtins, with the member names of the wire."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class Token(Answer, frozen=True):
    token: str


class SuiteCreated(Answer, frozen=True):
    uuid: str
    state: str
    assigned_managers: list[str] = []


class Suite(Answer, frozen=True):
    """A suite as lists show it."""

    uuid: str
    name: str | None
    group_name: str
    state: str
    creator_username: str = ""
    tags: list[str] = []
    labels: list[str] = []
    priority: int = 0
    total_tasks: int = 0
    pending_tasks: int = 0
    succeeded_tasks: int = 0
    failed_tasks: int = 0
    cancelled_tasks: int = 0
    is_paused: bool = False
    blocked_reason: str | None = None
    last_task_submitted_at: str | None = None
    created_at: str = ""
    updated_at: str = ""
    completed_at: str | None = None

    @property
    def ended_tasks(self) -> int:
        return self.total_tasks - self.pending_tasks


class SuiteDetail(Suite, frozen=True):
    """A suite with its plan and its hosts."""

    description: str | None = None
    worker_schedule: dict[str, Any] = {}
    env_preparation: dict[str, Any] | None = None
    env_cleanup: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None
    retry: dict[str, Any] | None = None
    max_running: int | None = None
    max_failures: int | None = None
    failure_rate: float | None = None
    settle_seconds: int = 0
    linger_seconds: int = 0
    auto_match: bool = True
    on_partition: str = ""
    generation: int = 1
    paused_at: str | None = None
    blocked_at: str | None = None
    closed_at: str | None = None
    cancelled_at: str | None = None
    cancel_reason: str | None = None
    assigned_managers: list[str] = []
    active_managers: list[str] = []


class SuiteState(Answer, frozen=True):
    """What close, reopen, pause and resume answer."""

    uuid: str
    suite_state: str
    is_paused: bool
    changed: bool


class SuiteCancelled(Answer, frozen=True):
    cancelled_task_count: int
    cancelling_task_count: int
    suite_state: str


class RerunTask(Answer, frozen=True):
    uuid: str
    task_id: int
    rerun_of: str


class Rerun(Answer, frozen=True):
    count: int
    tasks: list[RerunTask]
    has_more: bool
    suite_state: str


class Obstacle(Answer, frozen=True):
    code: str
    text: str
    fix: str


class Verdict(Answer, frozen=True):
    uuid: str
    kind: str
    verdict: str
    obstacles: list[Obstacle]


class Explanation(Answer, frozen=True):
    """Why something waits, and the smallest change that lets it run."""

    can_run: bool
    summary: str
    obstacles: list[Obstacle] = []
    managers: list[Verdict] = []
    workers: list[Verdict] = []
    runner_count: int = 0
    smallest_change: list[str] = []


class TaskResult(Answer, frozen=True):
    exit_status: int
    msg: str | None = None


class Task(Answer, frozen=True):
    uuid: str
    group_name: str
    task_id: int
    state: str
    creator_username: str = ""
    tags: list[str] = []
    labels: list[str] = []
    created_at: str = ""
    updated_at: str = ""
    timeout: int = 0
    priority: int = 0
    spec: dict[str, Any] = {}
    result: TaskResult | None = None
    upstream_task_uuid: str | None = None
    downstream_task_uuid: str | None = None
    reporter_uuid: str | None = None
    outcome: str | None = None
    reason: str | None = None
    suite_uuid: str | None = None
    rerun_of: str | None = None
    attempt: int = 0
    failures: int = 0
    cancelling: bool = False

    @property
    def args(self) -> list[str]:
        found: list[str] = self.spec.get("args", [])
        return found

    @property
    def exit_code(self) -> int | None:
        """As a shell would tell it: n for exit(n), 128+s for signal s."""
        return None if self.result is None else exit_code(self.result.exit_status)


def exit_code(wait_status: int) -> int:
    """From the raw wait status on the wire to what `$?` would show."""
    signal = wait_status & 0x7F
    return 128 + signal if signal else (wait_status >> 8) & 0xFF


class Artifact(Answer, frozen=True):
    content_type: str
    size: int
    created_at: str = ""
    updated_at: str = ""


class TaskDetail(Answer, frozen=True):
    info: Task
    artifacts: list[Artifact] = []


class Submitted(Answer, frozen=True):
    task_id: int
    uuid: str
    suite_uuid: str | None = None


class SubmittedArray(Answer, frozen=True):
    first_task_id: int
    last_task_id: int
    count: int
    uuids: list[str]
    suite_uuid: str | None = None


class TasksCancelled(Answer, frozen=True):
    cancelled_count: int
    cancelling_count: int = 0
    failed_uuids: list[str] = []


class Download(Answer, frozen=True):
    url: str
    size: int


class Upload(Answer, frozen=True):
    url: str
    exist: bool = False


class Attachment(Answer, frozen=True):
    size: int
    key: str = ""
    created_at: str = ""
    updated_at: str = ""
    sha256: str | None = None


class Event(Answer, frozen=True):
    """A step of a task in the log of a group."""

    kind: str
    at: str = ""
    seq: int | None = None
    state: str | None = None
    outcome: str | None = None
    attempt: int | None = None
    runner_uuid: str | None = None
    data: Any = None
    cursor: str = ""
    group_name: str | None = None
    task_uuid: str | None = None
    suite_uuid: str | None = None


class EventPage(Answer, frozen=True):
    events: list[Event]
    cursor: str
    is_end: bool
