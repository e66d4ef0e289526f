"""Every enumeration that crosses a wire or is stored as an integer.

The value of a member is its wire string, `.code` is the database integer, and `parse` also takes
the spellings that existing clients send. Neither strings nor integers may ever be reassigned.
"""

from mitosis_protocol.coded_enum import CodedEnum as CodedEnum  # noqa: PLC0414 - re-export


class TaskState(CodedEnum):
    """What existing clients see of a task. New values would break them: see Outcome, TaskPhase."""

    PENDING = "Pending", 0
    READY = "Ready", 1
    RUNNING = "Running", 2
    FINISHED = "Finished", 3
    CANCELLED = "Cancelled", 4
    UNKNOWN = "Unknown", 5


class TaskPhase(CodedEnum):
    """The state column of the active table; leaving the table is the archive."""

    PENDING = "pending", 0
    READY = "ready", 1
    LEASED = "leased", 2
    RUNNING = "running", 3
    FINISHING = "finishing", 4

    @property
    def wire(self) -> TaskState:
        """What existing clients are shown for a task whose runner did not report Cancel."""
        return self.wire_for(cancelled=False)

    def wire_for(self, *, cancelled: bool) -> TaskState:
        """As `wire`, for a finishing task that its runner reported with Cancel."""
        if self is TaskPhase.FINISHING:
            return TaskState.CANCELLED if cancelled else TaskState.FINISHED
        return _PHASE_ON_THE_WIRE[self]


_PHASE_ON_THE_WIRE = {
    TaskPhase.PENDING: TaskState.PENDING,
    TaskPhase.READY: TaskState.READY,
    TaskPhase.LEASED: TaskState.RUNNING,
    TaskPhase.RUNNING: TaskState.RUNNING,
}


class Outcome(CodedEnum):
    """How a task ended; sent beside TaskState, never instead of it."""

    SUCCEEDED = "succeeded", 0
    FAILED = "failed", 1
    TIMEOUT = "timeout", 2
    OOM = "oom", 3
    CANCELLED = "cancelled", 4
    UPSTREAM_FAILED = "upstream_failed", 5

    @property
    def wire(self) -> TaskState:
        """Existing workers commit a timed-out run after Cancel, so it reads Cancelled there."""
        stopped = {Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.UPSTREAM_FAILED}
        return TaskState.CANCELLED if self in stopped else TaskState.FINISHED


class SuiteState(CodedEnum):
    """Intake and progress of a suite, as the RFC numbers it."""

    OPEN = "Open", 0
    CLOSED = "Closed", 1
    COMPLETE = "Complete", 2
    CANCELLED = "Cancelled", 3


class ManagerState(CodedEnum):
    """What a node manager is doing; Offline is the coordinator's verdict, never the agent's."""

    IDLE = "Idle", 0
    PREPARING = "Preparing", 1
    EXECUTING = "Executing", 2
    CLEANUP = "Cleanup", 3
    OFFLINE = "Offline", 4


class AssignmentState(CodedEnum):
    """One engagement of a manager with a suite, from the offer to the paid cleanup."""

    ASSIGNED = "Assigned", 0
    PREPARING = "Preparing", 1
    EXECUTING = "Executing", 2
    LINGERING = "Lingering", 3
    CLEANUP = "Cleanup", 4
    RELEASED = "Released", 5


class SelectionType(CodedEnum):
    """Why a manager is eligible for a suite."""

    USER_SPECIFIED = "UserSpecified", 0
    TAG_MATCHED = "TagMatched", 1


class RunnerKind(CodedEnum):
    """The three things that lease tasks."""

    MANAGER = "Manager", 0
    INDEPENDENT = "Independent", 1
    DIRECT = "Direct", 2


class ConnState(CodedEnum):
    """Whether a runner's socket is up. Losing it reclaims nothing: the lease decides."""

    DISCONNECTED = "Disconnected", 0
    CONNECTED = "Connected", 1
    LOST = "Lost", 2


class DesiredState(CodedEnum):
    """What an operator wants of a runner; claims require Active, which is code 0."""

    ACTIVE = "Active", 0
    DRAINING = "Draining", 1
    QUARANTINED = "Quarantined", 2
    SHUTDOWN = "Shutdown", 3


class ConsentState(CodedEnum):
    """A group's answer to a runner that wants to serve it."""

    PENDING = "Pending", 0
    ACCEPTED = "Accepted", 1
    REFUSED = "Refused", 2


class WorkerState(CodedEnum):
    """Independent workers, as existing clients know them."""

    NORMAL = "Normal", 0
    GRACEFUL_SHUTDOWN = "GracefulShutdown", 1


class UserState(CodedEnum):
    """Whether an account may act."""

    ACTIVE = "Active", 0
    LOCKED = "Locked", 1
    DELETED = "Deleted", 2


class GroupState(CodedEnum):
    """Whether a group takes uploads and tasks."""

    ACTIVE = "Active", 0
    LOCKED = "Locked", 1
    DELETED = "Deleted", 2


class Role(CodedEnum):
    """Rights of a user in a group, or of a group on a runner. Ordered by strength."""

    READ = "Read", 0, "read", "READ"
    WRITE = "Write", 1, "write", "WRITE"
    ADMIN = "Admin", 2, "admin", "ADMIN"

    def allows(self, needed: "Role") -> bool:
        """Whether holding this role is enough where `needed` is asked for."""
        return self.code >= needed.code


class ArtifactContentType(CodedEnum):
    """The three archives a task leaves behind."""

    RESULT = "result", 0, "Result", "RESULT"
    EXEC_LOG = "exec-log", 1, "exec", "Exec", "EXEC", "execlog", "ExecLog", "Execlog", "EXECLOG"
    STD_LOG = (
        *("std-log", 2, "std", "Std", "STD", "stdlog", "Stdlog", "STDLOG"),
        *("terminal", "Terminal", "TERMINAL"),
    )


class AttachmentContentType(CodedEnum):
    """One value, spelled differently by the two existing clients."""

    NOT_SET = "NotSet", 0, "NoSet"


class ShutdownOp(CodedEnum):
    """How a worker is asked to leave."""

    GRACEFUL = "Graceful", 0, "graceful"
    FORCE = "Force", 1, "force"


class ReportOp(CodedEnum):
    """What a runner says about an attempt it holds (the tags of ReportTaskOp)."""

    FINISH = "Finish", 0
    CANCEL = "Cancel", 1
    UPLOAD = "Upload", 2
    SUBMIT = "Submit", 3
    COMMIT = "Commit", 4


class ReportAnswer(CodedEnum):
    """The coordinator's typed answer to a report; anything but RETRY_LATER settles it."""

    OK = "ok", 0
    OK_DUPLICATE = "ok_duplicate", 1
    STALE_ATTEMPT = "stale_attempt", 2
    RETRY_LATER = "retry_later", 3
    INVALID = "invalid", 4
    FORBIDDEN = "forbidden", 5


class TaskResultMessage(CodedEnum):
    """`result.msg` as existing clients validate it: these eight and no more."""

    FETCH_RESOURCE_TIMEOUT = "FetchResourceTimeout", 0
    EXEC_TIMEOUT = "ExecTimeout", 1
    UPLOAD_RESULT_TIMEOUT = "UploadResultTimeout", 2
    RESOURCE_NOT_FOUND = "ResourceNotFound", 3
    RESOURCE_FORBIDDEN = "ResourceForbidden", 4
    WATCH_TIMEOUT = "WatchTimeout", 5
    USER_CANCELLATION = "UserCancellation", 6
    SUBMIT_NEW_TASK_FAILED = "SubmitNewTaskFailed", 7


class TaskExecState(CodedEnum):
    """Progress inside one attempt: its name in JSON, its code in Redis."""

    WORKER_EXITED = "WorkerExited", -1
    FETCH_RESOURCE = "FetchResource", 1
    FETCH_RESOURCE_FINISHED = "FetchResourceFinished", 2
    FETCH_RESOURCE_ERROR = "FetchResourceError", 3
    FETCH_RESOURCE_TIMEOUT = "FetchResourceTimeout", 4
    FETCH_RESOURCE_NOT_FOUND = "FetchResourceNotFound", 5
    FETCH_RESOURCE_FORBIDDEN = "FetchResourceForbidden", 6
    WATCH = "Watch", 7
    WATCH_FINISHED = "WatchFinished", 8
    WATCH_TIMEOUT = "WatchTimeout", 9
    EXEC_PENDING = "ExecPending", 10
    EXEC_SPAWNED = "ExecSpawned", 11
    EXEC_FINISHED = "ExecFinished", 12
    EXEC_TIMEOUT = "ExecTimeout", 13
    UPLOAD_RESULT = "UploadResult", 14
    UPLOAD_FINISHED_RESULT = "UploadFinishedResult", 15
    UPLOAD_CANCELLED_RESULT = "UploadCancelledResult", 16
    UPLOAD_RESULT_FINISHED = "UploadResultFinished", 17
    UPLOAD_RESULT_TIMEOUT = "UploadResultTimeout", 18
    TASK_COMMITTED = "TaskCommitted", 19
    UNKNOWN = "Unknown", -99


class CpuStrategy(CodedEnum):
    """How a suite's workers share the cores of a host."""

    ROUND_ROBIN = "RoundRobin", 0
    EXCLUSIVE = "Exclusive", 1
    SHARED = "Shared", 2


class PartitionPolicy(CodedEnum):
    """What an agent does with running tasks when its lease runs out unseen."""

    KEEP = "keep", 0
    STOP = "stop", 1


class DependencyCondition(CodedEnum):
    """Which end of an upstream task lets a dependent one start."""

    OK = "ok", 0
    ANY = "any", 1
    FAILED = "failed", 2


class NoticeKind(CodedEnum):
    """What a webhook tells; `type` of its body."""

    SUITE_COMPLETED = "suite.completed", 0
    SUITE_BLOCKED = "suite.blocked", 1
    MANAGER_OFFLINE = "manager.offline", 2
    MANAGER_QUARANTINED = "manager.quarantined", 3
    FAILURE_BURST = "failures.burst", 4
    PING = "ping", 5  # asked for by a person, whatever a webhook subscribes to


class DeliveryState(CodedEnum):
    """Where one delivery of a webhook stands."""

    WAITING = "waiting", 0  # for its first try or the next one
    DELIVERED = "delivered", 1
    GIVEN_UP = "given_up", 2


class TokenKind(CodedEnum):
    """Who a token speaks for; a token of one kind never passes for another."""

    USER = "user", 0
    WORKER = "worker", 1
    MANAGER = "manager", 2
    DIRECT = "direct", 3
