"""A task and its archives as existing clients read them, with the fields we add beside."""

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from mitosis_protocol.timestamps import format_legacy
from tasks.models import ActiveTask, ArchivedTask, Artifact
from tasks.selectors import Task, names_of_groups, names_of_users
from tasks.selectors_suites import originals_of, uuids_of_suites


def task_infos(tasks: Collection[Task]) -> list[dict[str, object]]:
    """TaskInfo of each; four queries for any number of tasks."""
    users = names_of_users(task.creator_id for task in tasks)
    groups = names_of_groups(task.group_id for task in tasks)
    suites = uuids_of_suites({task.suite_id for task in tasks if task.suite_id is not None})
    originals = originals_of({task.pk for task in tasks if task.suite_id is not None})
    return [
        {
            **_common(task),
            **(_active(task) if isinstance(task, ActiveTask) else _archived(task)),
            "creator_username": users[task.creator_id],
            "group_name": groups[task.group_id],
            "suite_uuid": _suite(task, suites),
            "rerun_of": _text(originals.get(task.pk)),
        }
        for task in tasks
    ]


def artifact_infos(artifacts: Iterable[Artifact]) -> list[dict[str, object]]:
    return [
        {
            "content_type": row.content_type.value,
            "size": row.size,
            "created_at": format_legacy(row.created_at),
            "updated_at": format_legacy(row.updated_at),
        }
        for row in artifacts
    ]


def node_trace(stored: Mapping[str, object] | None) -> dict[str, object] | None:
    """Where a node stands in its chain: a host names its middlewares, a middleware its host."""
    if stored is None:
        return None
    if stored.get("chain_index") is None:
        return {"middlewares": stored.get("middleware_chain", [])}
    return {"host_node_id": stored.get("host_node_id"), "chain_index": stored["chain_index"]}


def _common(task: Task) -> dict[str, object]:
    return {
        "uuid": str(task.uuid),
        "task_id": task.number,
        "tags": task.tags,
        "labels": task.labels,
        "created_at": format_legacy(task.created_at),
        "updated_at": format_legacy(task.updated_at),
        "timeout": task.timeout_s,
        "priority": task.priority,
        "spec": task.spec,
        "upstream_task_uuid": _text(task.upstream_task_uuid),
        "downstream_task_uuid": _text(task.downstream_task_uuid),
        "attempt": task.attempt,
        "failures": task.failures,
        "middleware": node_trace(task.middleware),
    }


def _active(task: ActiveTask) -> dict[str, object]:
    return {
        "state": task.state.wire_for(cancelled=task.finish_cancelled).value,
        "result": None,
        "reporter_uuid": None,
        "outcome": None,
        "reason": None,
        "cancelling": task.cancel_requested_at is not None,
    }


def _archived(task: ArchivedTask) -> dict[str, object]:
    return {
        "state": task.state.value,
        "result": _result(task),
        "reporter_uuid": _text(task.reporter_uuid),
        "outcome": task.outcome.value,
        "reason": task.reason,
        "cancelling": False,
    }


def _result(task: ArchivedTask) -> dict[str, object] | None:
    """Existing clients want a number; a task whose command never ran has no result at all."""
    if task.exit_status is None and task.msg is None:
        return None
    return {
        "exit_status": task.exit_status or 0,
        "msg": None if task.msg is None else task.msg.value,
    }


def _suite(task: Task, suites: Mapping[int, UUID]) -> str | None:
    return None if task.suite_id is None else _text(suites.get(task.suite_id))


def _text(uuid: UUID | None) -> str | None:
    return None if uuid is None else str(uuid)
