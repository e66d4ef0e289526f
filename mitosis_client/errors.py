"""What can go wrong for a user of the client, as one tree.

MitosisError
├─ ConfigError             the settings or the arguments make no sense
├─ NotLoggedIn             no token for this coordinator yet
├─ CoordinatorUnreachable  nobody answers at that address
├─ UnexpectedAnswer        somebody answers, but not a coordinator of our kind
├─ WaitTimedOut            what was waited for did not happen in time
├─ TaskFailed              a task of an executor did not succeed
├─ SchedulerError          the batch system of `mitosis allocate` has a problem
│  ├─ SchedulerMissing     its commands are not installed here
│  ├─ SchedulerRefused     it said no, and why
│  ├─ SchedulerTimedOut    no answer in time: it may have done it all the same
│  └─ SchedulerUnclear     an answer that is none
└─ ApiError                the coordinator refused: status, code, retryable
   ├─ InvalidRequest 400, 413, 415, 422    ├─ NotFound 404 ─ AmbiguousId
   ├─ AuthenticationFailed 401             ├─ Conflict 409
   ├─ PermissionDenied 403                 ├─ Throttled 429
   └─ ServerError 5xx
"""

from typing import Final


class MitosisError(Exception):
    """Everything this package raises on purpose."""


class ConfigError(MitosisError):
    """The settings or the arguments make no sense."""


class NotLoggedIn(MitosisError):
    """There is no token for this coordinator."""


class CoordinatorUnreachable(MitosisError):
    """Nobody answers at the coordinator's address."""


class UnexpectedAnswer(MitosisError):
    """The answer is not what a coordinator of ours would say."""


class WaitTimedOut(MitosisError):
    """What was waited for did not happen in time."""


class TaskFailed(MitosisError):
    """A task ended without success. `outcome`, `exit_code` and the end of its stderr tell how."""

    def __init__(self, uuid: str, outcome: str, exit_code: int | None, stderr: str = "") -> None:
        self.uuid = uuid
        self.outcome = outcome
        self.exit_code = exit_code
        self.stderr = stderr
        code = "" if exit_code is None else f" with exit code {exit_code}"
        super().__init__(
            f"task {uuid} ended as {outcome}{code}" + (f": {stderr}" if stderr else "")
        )


class SchedulerError(MitosisError):
    """The batch system has a problem."""


class SchedulerMissing(SchedulerError):
    """The commands of the batch system are not installed here."""


class SchedulerRefused(SchedulerError):
    """The batch system said no; nothing was done."""


class SchedulerTimedOut(SchedulerError):
    """No answer in time: what was asked for may have happened all the same."""


class SchedulerUnclear(SchedulerError):
    """The batch system answered with something else than was asked for."""


class ApiError(MitosisError):
    """The coordinator refused. `code` is stable; the text is for people."""

    def __init__(
        self, message: str, *, status: int, code: str = "", retryable: bool = False
    ) -> None:
        self.message = message
        self.status = status
        self.code = code
        self.retryable = retryable
        super().__init__(message)


class InvalidRequest(ApiError):
    """A member of the request breaks a rule."""


class AuthenticationFailed(ApiError):
    """The token or the password is not accepted."""


class PermissionDenied(ApiError):
    """The role is too low, or a quota is used up."""


class NotFound(ApiError):
    """It does not exist, or not for this user."""


class AmbiguousId(NotFound):
    """A prefix fits more than one id."""


class Conflict(ApiError):
    """The state of the thing does not allow it now."""


class Throttled(ApiError):
    """Too many requests."""


class ServerError(ApiError):
    """The coordinator, or a store behind it, has a problem."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: AuthenticationFailed,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    429: Throttled,
}


def error_class(status: int) -> type[ApiError]:
    """Which refusal an HTTP status is."""
    if status >= 500:
        return ServerError
    return _BY_STATUS.get(status, InvalidRequest)
