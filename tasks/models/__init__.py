"""The tables of the tasks app: the queue itself, the evidence beside it, and what users upload."""

from tasks.models.evidence import (
    SuiteCountDelta,
    TaskAttempt,
    TaskDependency,
    TaskEvent,
    TaskExecutionFailure,
)
from tasks.models.queue import ActiveTask, ArchivedTask
from tasks.models.reruns import TaskRerun
from tasks.models.uploads import Artifact, Attachment, Submission

__all__ = [
    "ActiveTask",
    "ArchivedTask",
    "Artifact",
    "Attachment",
    "Submission",
    "SuiteCountDelta",
    "TaskAttempt",
    "TaskDependency",
    "TaskEvent",
    "TaskExecutionFailure",
    "TaskRerun",
]
