"""A worker as existing clients read it."""

from collections.abc import Iterable
from uuid import UUID

from mitosis_protocol.timestamps import format_legacy
from runners.models import Runner
from tasks.models import ActiveTask
from workers.models import Worker
from workers.selectors import last_heartbeat, wire_state


def worker_infos(runners: Iterable[Runner]) -> list[dict[str, object]]:
    """WorkerInfo of each; two queries more for any number of workers."""
    rows = list(runners)
    ids = [row.pk for row in rows]
    held, workers = held_tasks(ids), Worker.objects.in_bulk(ids)
    return [_info(row, workers[row.pk], held.get(row.pk)) for row in rows]


def held_tasks(runner_ids: list[int]) -> dict[int, UUID]:
    """The task each of these runners holds; the newest where a late result made it two."""
    rows = ActiveTask.objects.filter(runner_id__in=runner_ids).order_by("attempt_id")
    return {pk: uuid for pk, uuid in rows.values_list("runner_id", "uuid") if pk is not None}


def _info(runner: Runner, worker: Worker, task: UUID | None) -> dict[str, object]:
    return {
        "worker_id": str(runner.uuid),
        "creator_username": runner.owner.username,
        "tags": list(runner.tags),
        "labels": list(runner.labels),
        "created_at": format_legacy(runner.created_at),
        "updated_at": format_legacy(runner.updated_at),
        "state": wire_state(runner).value,
        "last_heartbeat": format_legacy(last_heartbeat(runner, worker)),
        "assigned_task_id": None if task is None else str(task),
        "kind": runner.kind.value,
    }
