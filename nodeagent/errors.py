"""The agent's error tree; the class is the policy, so callers never inspect messages.

    AgentError
    ├─ TransientError   back off and try again       CoordinatorUnavailable, LinkLost, IpcTimedOut
    ├─ TaskError        this attempt cannot go on    TaskGone, ReportRefused, QuotaExceeded,
    │                                                ResourceMissing, ResourceRefused,
    │                                                OfferUnreadable, SpawnRefused, WorkerDied
    ├─ SuiteError       this host cannot serve it    HookFailed, HookTimedOut, SpawnFailed,
    │                                                LimitsUnenforceable
    └─ FatalError       leave, with `exit_code`      AuthRejected, IdentityTaken, WorkerRemoved,
                                                     ConfigInvalid, HostUnusable,
                                                     ProtocolMismatch, AnotherAgentRunning

Used by everything below nodeagent. No message may carry a token, a password or a signed URL.
"""

from uuid import UUID


class AgentError(Exception):
    """Anything the agent or a worker knows how to answer."""


class TransientError(AgentError):
    """Trouble that time may cure."""


class CoordinatorUnavailable(TransientError):
    """The coordinator or the store did not answer, or answered that it cannot now.

    `maybe_applied` is false only when the request certainly never reached the other side.
    """

    def __init__(
        self, message: str, *, maybe_applied: bool = True, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.maybe_applied = maybe_applied
        self.retry_after_s = retry_after_s


class LinkLost(TransientError):
    """The socket to the coordinator is gone; what was asked on it may or may not have happened."""


class IpcTimedOut(TransientError):
    """The other side of the worker's channel did not answer in time."""


class TaskError(AgentError):
    """Trouble with one attempt; the worker itself is well."""


class TaskGone(TaskError):
    """The coordinator says this attempt is no longer ours (or is already committed)."""


class ReportRefused(TaskError):
    """A report the coordinator will never accept."""


class QuotaExceeded(TaskError):
    """The group has no storage left for an upload."""


class ResourceMissing(TaskError):
    """A resource of the task does not exist."""


class ResourceRefused(TaskError):
    """A resource may not be read, could not be downloaded, or has a path we will not write."""


class SpawnRefused(TaskError):
    """The kernel would not start the command (bad environment, argument list too long ...)."""


class OfferUnreadable(TaskError):
    """A task was handed to us in a form we cannot run."""

    def __init__(
        self, message: str, *, attempt_id: int, uuid: UUID, is_resource_trouble: bool
    ) -> None:
        super().__init__(message)
        self.attempt_id = attempt_id
        self.uuid = uuid
        self.is_resource_trouble = is_resource_trouble


class WorkerDied(TaskError):
    """The worker process ended with the attempt in its hands."""


class SuiteError(AgentError):
    """This host cannot do its part for a suite; the suite is told why."""


class HookFailed(SuiteError):
    """A preparation or cleanup command ended badly."""

    def __init__(self, message: str, *, exit_code: int | None, stderr_tail: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.stderr_tail = stderr_tail


class HookTimedOut(SuiteError):
    """A hook ran longer than its timeout and was killed with everything it started."""


class SpawnFailed(SuiteError):
    """A worker process could not be started."""


class LimitsUnenforceable(SuiteError):
    """A limit was asked for that this host has no means to enforce."""


class FatalError(AgentError):
    """The process cannot do its job and must end."""

    exit_code = 1


class AuthRejected(FatalError):
    """No usable credential, or the coordinator refused it."""


class IdentityTaken(FatalError):
    """Another agent runs under our identity: a copied data directory, most likely."""

    exit_code = 4


class ProtocolMismatch(FatalError):
    """The coordinator and this agent do not speak the same version."""

    exit_code = 5


class AnotherAgentRunning(FatalError):
    """The machine, or this instance name, already has its agent."""

    exit_code = 3


class WorkerRemoved(FatalError):
    """The coordinator no longer knows this worker: a clean, expected end."""

    exit_code = 0


class ConfigInvalid(FatalError):
    """A setting that cannot be used; the message names it and where it came from."""

    exit_code = 2


class HostUnusable(FatalError):
    """This host cannot run commands safely any more."""
