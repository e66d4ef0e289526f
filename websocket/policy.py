"""Who may send what: the sockets' part of the one policy table (accounts.policy).

Every message is fenced further by its service: a runner reaches the attempts it holds, a manager
also the engagement it has, nothing else.
"""

from collections.abc import Mapping
from typing import Final

from accounts.policy import Need

# By tag of the message on /ws/managers.
MANAGER_MESSAGES: Final[Mapping[str, Need]] = {
    "hello": Need.MANAGER,
    "heartbeat": Need.MANAGER,  # and only in its own name
    "fetch_task": Need.MANAGER,  # from the suite it is engaged with
    "fetch_tasks": Need.MANAGER,
    "report_task": Need.MANAGER,  # about attempts it holds, as all of these
    "report_tasks": Need.MANAGER,
    "report_failure": Need.MANAGER,
    "abort_task": Need.MANAGER,
    "return_tasks": Need.MANAGER,
    "task_events": Need.MANAGER,
    "resolve_resources": Need.MANAGER,  # of the group of its task or suite
    "suite_completed": Need.MANAGER,  # about its own engagement
    "suite_failed": Need.MANAGER,
}

# By type of the message on /ws/workers; tenant and sender have to be the token's in each of them.
WORKER_MESSAGES: Final[Mapping[str, Need]] = {
    "handshake": Need.DIRECT,
    "register": Need.DIRECT,
    "ack": Need.DIRECT,
    "heartbeat": Need.DIRECT,
    "feedback": Need.DIRECT,  # about attempts it holds
    "result": Need.DIRECT,  # about attempts it holds, or held and nobody else was given since
    "error": Need.DIRECT,
    "pkg.event": Need.DIRECT,
}
