"""Client library and command line of Mitosis: `Client`, `AsyncClient`, results and errors.

Each name is imported when it is first used: the command line needs a third of this package, and
a shell waits for every import.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mitosis_client.async_client import AsyncClient
    from mitosis_client.calls.tasks import NewTask
    from mitosis_client.campaign import Campaign
    from mitosis_client.client import Client
    from mitosis_client.connecting import connect
    from mitosis_client.errors import (
        AmbiguousId,
        ApiError,
        AuthenticationFailed,
        ConfigError,
        Conflict,
        CoordinatorUnreachable,
        InvalidRequest,
        MitosisError,
        NotFound,
        NotLoggedIn,
        PermissionDenied,
        ServerError,
        TaskFailed,
        Throttled,
        UnexpectedAnswer,
        WaitTimedOut,
    )
    from mitosis_client.executor import CommandResult, MitosisExecutor
    from mitosis_protocol.specs import EnvHookSpec, WorkerSchedule
    from mitosis_protocol.suites import SuiteSpec

__all__ = [
    "AmbiguousId",
    "ApiError",
    "AsyncClient",
    "AuthenticationFailed",
    "Campaign",
    "Client",
    "CommandResult",
    "ConfigError",
    "Conflict",
    "CoordinatorUnreachable",
    "EnvHookSpec",
    "InvalidRequest",
    "MitosisError",
    "MitosisExecutor",
    "NewTask",
    "NotFound",
    "NotLoggedIn",
    "PermissionDenied",
    "ServerError",
    "SuiteSpec",
    "TaskFailed",
    "Throttled",
    "UnexpectedAnswer",
    "WaitTimedOut",
    "WorkerSchedule",
    "connect",
]

# All other names of __all__ are errors.
_HOMES: Final = {
    "AsyncClient": "mitosis_client.async_client",
    "Campaign": "mitosis_client.campaign",
    "Client": "mitosis_client.client",
    "CommandResult": "mitosis_client.executor",
    "EnvHookSpec": "mitosis_protocol.specs",
    "MitosisExecutor": "mitosis_client.executor",
    "NewTask": "mitosis_client.calls.tasks",
    "SuiteSpec": "mitosis_protocol.suites",
    "WorkerSchedule": "mitosis_protocol.specs",
    "connect": "mitosis_client.connecting",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "mitosis_client.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
