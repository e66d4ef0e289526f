"""Waiting until another task has got somewhere, read from the coordinator's database.

Existing workers need Redis for this and skip the wait without it; polling the task works
everywhere. Pure mapping plus one loop; called by task_run.
"""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import structlog

from mitosis_protocol.enums import TaskExecState, TaskResultMessage, TaskState
from nodeagent.errors import ResourceMissing
from nodeagent.worker.comm import TaskSnapshot
from nodeagent.worker.retry import jittered

log = structlog.stdlib.get_logger(__name__)

_FIRST_PAUSE_S = 1.0
_GROWTH = 1.5
# Existing workers look every 30 s; half of that keeps chains of tasks moving.
_LONGEST_PAUSE_S = 15.0

_FETCHED = frozenset({TaskExecState.FETCH_RESOURCE, TaskExecState.FETCH_RESOURCE_FINISHED})
_RAN = _FETCHED | {
    TaskExecState.WATCH,
    TaskExecState.WATCH_FINISHED,
    TaskExecState.EXEC_PENDING,
    TaskExecState.EXEC_SPAWNED,
}
_FINISHED = _RAN | {TaskExecState.EXEC_FINISHED}
_UPLOADING = frozenset({TaskExecState.UPLOAD_RESULT})
_FINISHED_UPLOAD = _UPLOADING | {TaskExecState.UPLOAD_FINISHED_RESULT}
_CANCELLED_UPLOAD = _UPLOADING | {TaskExecState.UPLOAD_CANCELLED_RESULT}
_COMMITTED = frozenset({TaskExecState.TASK_COMMITTED})

# What a committed result says about a task that was stopped on its way.
_STOPPED_AT: dict[TaskResultMessage, frozenset[TaskExecState]] = {
    TaskResultMessage.FETCH_RESOURCE_TIMEOUT: frozenset(
        {TaskExecState.FETCH_RESOURCE, TaskExecState.FETCH_RESOURCE_TIMEOUT}
    ),
    TaskResultMessage.RESOURCE_NOT_FOUND: frozenset(
        {TaskExecState.FETCH_RESOURCE, TaskExecState.FETCH_RESOURCE_NOT_FOUND}
    ),
    TaskResultMessage.RESOURCE_FORBIDDEN: frozenset(
        {TaskExecState.FETCH_RESOURCE, TaskExecState.FETCH_RESOURCE_FORBIDDEN}
    ),
    TaskResultMessage.WATCH_TIMEOUT: _FETCHED | {TaskExecState.WATCH, TaskExecState.WATCH_TIMEOUT},
    TaskResultMessage.EXEC_TIMEOUT: _RAN | _CANCELLED_UPLOAD | {TaskExecState.EXEC_TIMEOUT},
}


class WatchHopeless(Exception):
    """The watched task is over, or unknown, and never got where we wait for it."""


def reached(task: TaskSnapshot) -> frozenset[TaskExecState]:
    """Every exec state the task has certainly passed or entered."""
    if task.state is TaskState.RUNNING:
        return frozenset({TaskExecState.FETCH_RESOURCE})
    if task.state is TaskState.FINISHED:
        return _reached_by_finished(task)
    if task.state is TaskState.CANCELLED and task.is_committed:
        stopped_at = _STOPPED_AT.get(task.msg, frozenset()) if task.msg else frozenset()
        return stopped_at | _COMMITTED
    return frozenset()


def _reached_by_finished(task: TaskSnapshot) -> frozenset[TaskExecState]:
    if not task.is_committed:
        return _FINISHED
    if task.msg is TaskResultMessage.UPLOAD_RESULT_TIMEOUT:
        upload_end = TaskExecState.UPLOAD_RESULT_TIMEOUT
    else:
        upload_end = TaskExecState.UPLOAD_RESULT_FINISHED
    return _FINISHED | _FINISHED_UPLOAD | _COMMITTED | {upload_end}


async def wait_for_state(
    read: Callable[[UUID], Awaitable[TaskSnapshot]], uuid: UUID, wanted: TaskExecState
) -> None:
    """Return once `uuid` has reached `wanted`; raises WatchHopeless when it never will."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            task = await read(uuid)
        except ResourceMissing as error:
            raise WatchHopeless(f"task {uuid} is unknown") from error
        if wanted in reached(task):
            return
        if task.is_committed:
            raise WatchHopeless(f"task {uuid} ended without reaching {wanted}")
        await asyncio.sleep(jittered(pause_s))
        pause_s = min(_LONGEST_PAUSE_S, pause_s * _GROWTH)
