"""Change a task: what is run and how urgently while it waits, its labels at any time.

The caller has checked Write in the task's group. Synchronous, one statement each.
"""

from collections.abc import Collection
from uuid import UUID

from core.errors import InvalidInput, NotFound
from core.fields import normalised_tags
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_LABELS
from mitosis_protocol.specs import TaskSpec
from tasks import store
from tasks.models import ActiveTask
from tasks.new_task import encode_spec, lane_of


def change_task(
    uuid: UUID,
    *,
    tags: Collection[str] | None = None,
    timeout_s: int | None = None,
    priority: int | None = None,
    spec: TaskSpec | None = None,
) -> None:
    """Change what is given. Raises NotFound unless the task is Ready, as existing clients expect.

    A lost attempt that still runs the old task is fenced off by this.
    """
    if tags is None and timeout_s is None and priority is None and spec is None:
        raise InvalidInput("nothing to change")
    sorted_tags = None if tags is None else _sorted(tags)
    lane = None if sorted_tags is None else lane_of(sorted_tags, _pin_of(uuid))
    changed = store.CHANGE.fetch_sync(
        {
            "uuid": str(uuid),
            "tags": None if sorted_tags is None else [*sorted_tags],
            "lane": lane,
            "timeout_s": timeout_s,
            "priority": priority,
            "spec": None if spec is None else encode_spec(spec),
        }
    )
    if not changed:
        raise NotFound("Task not found")


def relabel_task(uuid: UUID, labels: Collection[str]) -> None:
    """Replace the labels, in any state, archived too. Raises NotFound."""
    sorted_labels = _sorted(labels, max_items=MAX_LABELS)
    changed = store.RELABEL.fetch_sync({"uuid": str(uuid), "labels": [*sorted_labels]})
    # A task that moved to the archive between the statement's snapshot and its lock is there now.
    if not changed:
        changed = store.RELABEL.fetch_sync({"uuid": str(uuid), "labels": [*sorted_labels]})
    if not changed:
        raise NotFound("Task not found")


def _pin_of(uuid: UUID) -> int | None:
    return ActiveTask.objects.filter(uuid=uuid).values_list("pinned_runner_id", flat=True).first()


def _sorted(texts: Collection[str], **limit: int) -> list[str]:
    try:
        return normalised_tags(texts, **limit)
    except InvalidValue as error:
        raise InvalidInput(str(error)) from error
